-- schema creates the table. It may be run repeatedly, and concurrently if each run is one
-- transaction: the advisory lock serializes them, because concurrent CREATE statements would
-- fail.
SELECT pg_advisory_xact_lock(1936615778, 0);
CREATE TABLE IF NOT EXISTS {table} (
	name    text COLLATE "C" PRIMARY KEY,
	token   bigint  NOT NULL,
	slots   integer NOT NULL,
	holders jsonb   NOT NULL,
	waiters jsonb   NOT NULL,
	used    bigint  NOT NULL
) WITH (fillfactor = 50);
INSERT INTO {table} VALUES ('', 0, 1, '[]', '[]', 0) ON CONFLICT DO NOTHING;
