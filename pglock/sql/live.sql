-- live is true if the entry e counts at the time c.now.
(e->>'until')::bigint > c.now
