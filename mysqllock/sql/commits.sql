-- Whether what a statement writes is committed with it, on the primary: the server has not set
-- read_only, and the program has left no transaction open on the connection.
{writable} AND @@autocommit AND NOT @@in_transaction
