-- The columns that hold the state of a row.
version, token, slots, id, ttl, ends, holders, waiters, called, used
