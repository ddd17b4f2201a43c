-- Extends exclusive leases, and never shortens one. It adds to the version, whatever that is, so a
-- proxy that sends it twice brings no old version back. Parameters, in the order of names: names
-- with TTLs, twice; names; names with ids.
UPDATE {table} FORCE INDEX (PRIMARY) SET version = (version & 4611686018427387903) + [version],
	ttl = GREATEST(ttl, CASE name [cases] END), ends = GREATEST(ends, {clock} + CASE name [cases] END)
WHERE name IN ([names]) AND id = CASE name [cases] END
	AND ends > {clock} AND {commits}
