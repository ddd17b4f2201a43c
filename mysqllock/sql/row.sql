-- The columns of a row l that a state is read from.
l.name, l.version, l.token, l.slots, l.id, l.ttl, l.ends, l.holders, l.waiters, l.called
