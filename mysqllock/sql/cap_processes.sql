-- Lets processes with these rows count for no longer than a heartbeat does. Parameters: twice how
-- long that is, names.
UPDATE {table} FORCE INDEX (PRIMARY) SET ends = {clock} + ?
WHERE ends > {clock} + ? AND name IN ([names]) AND {commits}
