-- well_formed is true if {live} can be computed for all entries of the row l. One row for which it
-- can't must not prevent the pruning of all others.
CASE WHEN jsonb_typeof(l.holders) = 'array' AND jsonb_typeof(l.waiters) = 'array' THEN
	NOT EXISTS (SELECT FROM jsonb_array_elements(l.holders || l.waiters) e WHERE coalesce(e->>'until', '') !~ '^[0-9]{1,18}$') ELSE false END
