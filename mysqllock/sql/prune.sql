-- Deletes rows that stale has found, unless they are used again. The floor covered their tokens
-- before they were found, so a row with another token has been used since. Parameters: the time,
-- twice, and names.
DELETE l FROM {table} l FORCE INDEX (PRIMARY)
WHERE used < {clock} - ? AND ends < {clock} - ? AND name IN ([names]) AND {commits}
