-- Reads the engine of the table. Parameters: its database, which may be empty, and its name.
SELECT engine FROM information_schema.tables
WHERE table_schema = COALESCE(NULLIF(CONVERT(? USING utf8mb4), ''), DATABASE()) AND table_name = CONVERT(? USING utf8mb4)
