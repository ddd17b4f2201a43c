-- list reads the first 100 rows that may have holders or waiters, in the order of names, whose
-- names begin with $1 and lie between $2 and $3.
SELECT {row} FROM ({page_rows}) l, (SELECT {clock} AS now) c ORDER BY l.name
