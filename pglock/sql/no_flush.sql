-- no_flush lets a commit not wait for the disk. If the commit is lost, nothing is granted
-- twice.
set_config('synchronous_commit', 'off', true)
