-- Returns a row that signals a driver as soon as there is one, or nothing after a while. Parameters:
-- number of checks, seconds before each check, driver. The server checks within one statement. Its
-- session is READ UNCOMMITTED, so it sees a signal before that is committed, and the signaled driver
-- already waits for the row when the row is unlocked. If the server has set read_only, the row is the
-- one with the empty name.
BEGIN NOT ATOMIC
	DECLARE hit VARBINARY(767);
	DECLARE checks INT DEFAULT ?;
	WHILE checks > 0 AND hit IS NULL DO
		DO SLEEP(?);
		SET hit = IF({writable}, (SELECT name FROM {table} WHERE called = ? LIMIT 1), '');
		SET checks = checks - 1;
	END WHILE;
	SELECT 0, {clock}, 0, {row} FROM {table} l WHERE l.name = hit;
END
