-- Waits for the advisory lock of the key $1, its read side if $2 is true, in the server's queue.
SELECT CASE WHEN $2::bool THEN pg_advisory_lock_shared($1::bigint)::text ELSE pg_advisory_lock($1::bigint)::text END
