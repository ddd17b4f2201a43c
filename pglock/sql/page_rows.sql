-- page_rows are the rows of list.
SELECT * FROM {table}
	WHERE name BETWEEN $2::text AND $3::text AND starts_with(name, $1::text) AND name <> '' AND (holders <> '[]' OR waiters <> '[]')
	ORDER BY name LIMIT 100
