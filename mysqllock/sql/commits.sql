-- Whether what a statement writes is committed with it, on the primary: the server has not set
-- read_only, and the program has left no transaction open on the connection. [alone] is the latter,
-- unless the driver itself opens a transaction.
NOT @@global.read_only[alone]
