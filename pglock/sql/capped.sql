-- capped is the entry e of a holder at the time c.now. If it ends more than a whole TTL from
-- now, the clock was set back after it was granted or renewed. It then ends one TTL from now:
-- its holder does not rely on more.
CASE WHEN (e->>'until')::bigint > c.now + (e->>'ttl')::bigint
		THEN e || jsonb_build_object('until', c.now + (e->>'ttl')::bigint) ELSE e END
