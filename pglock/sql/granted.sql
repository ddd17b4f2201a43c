-- The new holders for t, which is a request with its token and the time.
jsonb_build_array(t.entry::jsonb || jsonb_build_object(
		'token', t.token, 'tokens', t.tokens, 'since', t.now, 'until', t.now + t.ttl, 'ttl', t.ttl))
