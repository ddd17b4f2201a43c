-- row is the columns that are read from a row l at the time c.now.
l.name, l.slots,
	(SELECT coalesce(jsonb_agg(e ORDER BY i), '[]') FROM jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i) WHERE {live}),
	(SELECT coalesce(jsonb_agg(e ORDER BY i), '[]') FROM jsonb_array_elements(l.waiters) WITH ORDINALITY AS a(e, i) WHERE {live}), c.now
