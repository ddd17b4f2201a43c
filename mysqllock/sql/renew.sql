-- Extends exclusive leases. Parameters, in the order of names: names with TTLs, names, names with
-- tokens.
UPDATE {table} SET version = {next_version}, ends = {clock} + CASE name {cases} END
WHERE name IN ({names}) AND held = CASE name {cases} END AND kept = 0 AND ends > {clock} AND NOT @@global.read_only
