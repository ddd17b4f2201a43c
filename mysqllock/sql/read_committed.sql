-- As read, and waits for the transactions that are changing the rows. Parameters: names.
{read} LOCK IN SHARE MODE
