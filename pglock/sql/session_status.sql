-- Reads which sessions have the advisory lock of the key $1 or wait for it, in the order of the queue:
-- process, whether it has the lock, whether it shares it, application name, and for how long it has
-- waited in microseconds.
SELECT l.pid, l.granted, l.mode = 'ShareLock', coalesce(a.application_name, ''),
	coalesce((extract(epoch FROM clock_timestamp() - l.waitstart) * 1000000)::bigint, 0)
FROM pg_locks l
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.objsubid = 1
	AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
	AND l.classid::bigint = (($1::bigint >> 32) & 4294967295) AND l.objid::bigint = ($1::bigint & 4294967295)
ORDER BY l.granted DESC, l.waitstart, l.pid
