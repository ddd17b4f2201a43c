-- clock is the server's time in microseconds.
(extract(epoch FROM clock_timestamp()) * 1000000)::bigint
