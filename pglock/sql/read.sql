-- read reads the rows of $1 names, without entries that have ended.
SELECT {row} FROM {table} l, (SELECT {clock} AS now) c WHERE l.name = ANY ($1::text[])
