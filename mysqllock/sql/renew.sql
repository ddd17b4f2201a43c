-- Extends exclusive leases, and never shortens one. Parameters: a new version; in the order of
-- names: names with TTLs, twice; names; names with ids.
UPDATE {table} FORCE INDEX (PRIMARY) SET version = ?, ttl = GREATEST(ttl, CASE name [cases] END),
	ends = GREATEST(ends, {clock} + CASE name [cases] END)
WHERE name IN ([names]) AND id = CASE name [cases] END
	AND ends > {clock} AND {commits}
