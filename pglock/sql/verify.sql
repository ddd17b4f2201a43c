-- verify is read on the primary only: a standby, which may lag behind, refuses to lock the rows.
{read} FOR KEY SHARE OF l
