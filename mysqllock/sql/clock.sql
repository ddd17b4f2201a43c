-- The server's time in microseconds at the beginning of the statement, whatever the time zone of
-- the session.
TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
