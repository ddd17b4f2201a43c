-- is_endable is true if the lease r is the only one in the row l and need not be kept, and the first
-- waiter, if there is one, is exclusive.
jsonb_array_length(l.holders) = 1 AND l.holders->0->>'id' = r.id
	AND NOT l.holders->0 ? 'kept' AND (l.holders->0->>'until')::bigint > c.now
	AND (NOT l.holders->0 ? 'min_hold'
		OR least((l.holders->0->>'since')::bigint, c.now) + (l.holders->0->>'min_hold')::bigint <= c.now)
	AND (l.waiters = '[]' OR l.slots = 0 AND NOT (l.waiters->0->>'shared')::bool AND (l.waiters->0->>'until')::bigint > c.now)
