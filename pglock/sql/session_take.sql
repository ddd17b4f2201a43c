-- Tries to take the advisory lock of the key $1, its read side if $2 is true. Only then it reads what
-- session_alive.sql reads: the clock is the token of the hold.
SELECT t.got, pg_backend_pid(), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
	pg_is_in_recovery() OR current_setting('transaction_read_only')::bool
FROM (SELECT CASE WHEN $2::bool THEN pg_try_advisory_lock_shared($1::bigint) ELSE pg_try_advisory_lock($1::bigint) END AS got OFFSET 0) t
