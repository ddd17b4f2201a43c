-- Waits for the advisory lock of the key $1, its read side if $2 is true, in the server's queue. Then
-- it reads what session_alive.sql reads.
SELECT pg_backend_pid(), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
	pg_is_in_recovery() OR current_setting('transaction_read_only')::bool
FROM (SELECT CASE WHEN $2::bool THEN pg_advisory_lock_shared($1::bigint)::text ELSE pg_advisory_lock($1::bigint)::text END OFFSET 0) t
