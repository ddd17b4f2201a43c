-- flush makes a commit wait for the disk, even if the user's default is not to wait. It has the
-- server say when it has not waited for its synchronous standby.
concat(CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END,
	CASE current_setting('client_min_messages') WHEN 'error' THEN set_config('client_min_messages', 'warning', true) END)
