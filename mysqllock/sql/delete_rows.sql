-- Deletes rows. Parameters: names.
DELETE FROM {table} WHERE name IN ([names]) AND {commits}
