-- Releases the advisory lock of the key $1, its read side if $2 is true. It returns false if the
-- session does not have it.
SELECT CASE WHEN $2::bool THEN pg_advisory_unlock_shared($1::bigint) ELSE pg_advisory_unlock($1::bigint) END
