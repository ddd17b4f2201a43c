-- flush makes a commit wait for the disk, even if the user's default is not to wait.
CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
