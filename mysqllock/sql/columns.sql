-- The columns that hold the state of a row.
version, token, slots, id, held, ttl, min_hold, kept, since, ends, holder, holders, waiters, called, used
