-- Whether the server has not set read_only. Since MariaDB 12.0 the variable is one of OFF, ON, NO_LOCK
-- and NO_LOCK_NO_ADMIN; before, it is 0 or 1.
CAST(@@global.read_only AS CHAR) IN ('0', 'OFF')
