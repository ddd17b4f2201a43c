-- list_names reads only the names of these rows.
SELECT l.name FROM ({page_rows}) l ORDER BY l.name
