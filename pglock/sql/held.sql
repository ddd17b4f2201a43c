-- held is true if the lease of $2 id has not ended.
EXISTS (SELECT FROM (SELECT {clock} AS now) c CROSS JOIN LATERAL jsonb_array_elements(l.holders) e
	WHERE {is_it} AND NOT e ? 'kept' AND {live})
