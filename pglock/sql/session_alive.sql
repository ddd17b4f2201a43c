-- Reads by which process the server serves the session, its clock in microseconds, and whether it
-- refuses writes: a standby or a demoted primary must not keep locks.
SELECT pg_backend_pid(), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
	pg_is_in_recovery() OR current_setting('transaction_read_only')::bool
