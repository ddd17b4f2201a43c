-- The columns of a row l that a state is read from.
l.name, l.version, l.token, l.slots, l.id, l.held, l.ttl, l.min_hold, l.kept, l.since, l.ends, l.holder, l.holders,
	l.waiters, l.called
