-- Sets the session's parameters; transaction_timeout only if the server has it, as PostgreSQL 17. The
-- server then ends a session that was silent for $1, also while it waits for a lock if the client's
-- host is gone, which takes three probes $2 apart; tcp_user_timeout could end it sooner, when an
-- answer is not delivered. $3 is the name under which pg_stat_activity shows the session.
SELECT count(set_config(v.name, v.value, false))
FROM (VALUES ('statement_timeout', '0'), ('lock_timeout', '0'), ('transaction_timeout', '0'), ('tcp_user_timeout', '0'), ('idle_session_timeout', $1::text),
	('tcp_keepalives_idle', $2::text), ('tcp_keepalives_interval', $2::text), ('tcp_keepalives_count', '2'),
	('default_transaction_isolation', 'read committed'), ('application_name', $3::text)) v(name, value)
WHERE v.name <> 'transaction_timeout' OR EXISTS (SELECT FROM pg_settings WHERE name = 'transaction_timeout')
