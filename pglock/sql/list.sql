-- list reads the names of the first 100 rows that may have holders or waiters, in their order. They
-- begin with $1 and lie between $2 and $3.
SELECT name FROM {table}
WHERE name BETWEEN $2::text AND $3::text AND starts_with(name, $1::text) AND name <> '' AND (holders <> '[]' OR waiters <> '[]')
ORDER BY name LIMIT 100
