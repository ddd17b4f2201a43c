-- Does $1 with the advisory lock of the key $2. It reads whether that succeeded, by which process the
-- server serves the session, the server's clock, which is the token of a hold, and whether the server
-- refuses writes: a standby or a demoted primary must not keep locks.
SELECT t.ok, pg_backend_pid(), clock_timestamp(), pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on'
FROM (SELECT CASE $1::text
	WHEN 'try' THEN pg_try_advisory_lock($2::bigint)
	WHEN 'try shared' THEN pg_try_advisory_lock_shared($2::bigint)
	WHEN 'wait' THEN pg_advisory_lock($2::bigint) IS NOT NULL
	WHEN 'wait shared' THEN pg_advisory_lock_shared($2::bigint) IS NOT NULL
	WHEN 'free' THEN pg_advisory_unlock($2::bigint)
	WHEN 'free shared' THEN pg_advisory_unlock_shared($2::bigint)
	ELSE true END AS ok OFFSET 0) t
