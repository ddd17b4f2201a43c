-- Finds the greatest token of the rows that were unused for a time. It ignores tokens that are too
-- far ahead of the clock: noting one would raise the tokens of all new names. Parameters: the
-- time, and how far a token may be ahead.
SELECT COALESCE(MAX(token), 0) FROM {table} WHERE name <> '' AND used < {clock} - ? AND token <= {clock} + ?
