-- Notifies the first waiter of the row l.
CASE WHEN l.waiters <> '[]' THEN pg_notify(l.waiters->0->>'channel', 'g' || (l.waiters->0->>'nonce'))::text END
