-- is_it is true if the entry e of a holder has the id $3 and the token $2. Who knows only the id
-- gives 0 as the token.
e->>'owner' = $3::text AND ($2::bigint = 0 OR (e->>'token')::bigint = $2::bigint)
