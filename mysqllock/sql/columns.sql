-- The columns that hold the state of a row.
version, token, slots, held, kept, since, ends, holder, holders, waiters, called, used
