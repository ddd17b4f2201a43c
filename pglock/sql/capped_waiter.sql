-- capped_waiter is the same for the entry e of a waiter, which counts for {life}.
CASE WHEN (e->>'until')::bigint > c.now + {life}
		THEN e || jsonb_build_object('until', c.now + {life}) ELSE e END
