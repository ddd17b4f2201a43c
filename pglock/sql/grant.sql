-- What a grant of the request r writes into the row l at the time c.now.
slots = r.slots, used = c.now, waiters = CASE l.waiters WHEN '[]' THEN l.waiters ELSE l.waiters - 0 END,
	(token, holders) = (SELECT t.token + t.tokens - 1, {granted} FROM (SELECT r.*, c.now, greatest(l.token + 1, c.now) AS token) t)
