-- Reads which of the processes with these rows live. Parameters: names.
SELECT name, ends FROM {table} WHERE name IN ([names]) AND ends > {clock}
