-- is_it is true if the entry e of a holder has the id $2.
e->>'id' = $2::text
