-- is_free is true if the row l is free for the request r.
l.holders = '[]' AND (l.waiters = '[]' OR l.waiters->0->>'nonce' = r.nonce)
