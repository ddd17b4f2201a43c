-- holding are the entries e of the holders in the row l that were not released, with their
-- places i.
jsonb_array_elements(l.holders) WITH ORDINALITY AS a(e, i) WHERE NOT e ? 'kept'
