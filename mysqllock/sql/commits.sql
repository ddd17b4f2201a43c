-- Whether what a statement writes is committed with it, on the primary: the server has not set
-- read_only.
{writable} AND @@autocommit
