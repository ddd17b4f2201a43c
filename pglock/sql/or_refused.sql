-- A part of acquire: the answer of the precheck.
UNION ALL SELECT slots, holders, waiters, used, false, 0 FROM seen
