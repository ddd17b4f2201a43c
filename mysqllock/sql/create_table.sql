-- Creates the table. It may be run repeatedly and concurrently.
CREATE TABLE IF NOT EXISTS {table} (
	name    VARBINARY(767)  NOT NULL PRIMARY KEY,
	version BIGINT          NOT NULL,
	token   BIGINT          NOT NULL,
	slots   INT             NOT NULL,
	id      VARBINARY(1024) NOT NULL,
	ttl     BIGINT          NOT NULL,
	ends    BIGINT          NOT NULL,
	holders MEDIUMBLOB      NOT NULL,
	waiters MEDIUMBLOB      NOT NULL,
	called  VARBINARY(32),
	used    BIGINT          NOT NULL,
	KEY called (called)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
