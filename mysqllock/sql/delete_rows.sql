-- Deletes rows. Parameters: names.
DELETE l FROM {table} l FORCE INDEX (PRIMARY) WHERE name IN ([names]) AND {commits}
