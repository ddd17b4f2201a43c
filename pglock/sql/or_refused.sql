-- A part of acquire: the answer of the precheck.
UNION ALL SELECT slots, holders, waiters, used, false, NULL FROM seen
