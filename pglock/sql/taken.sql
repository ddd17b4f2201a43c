-- taken is held, or true if the lease was released and is kept until MinHold has passed.
EXISTS (SELECT FROM (SELECT {clock} AS now) c CROSS JOIN LATERAL jsonb_array_elements(l.holders) e
	WHERE {is_it} AND {live})
