//go:build mutants

package mutant

var fenceMutants = []mutant{
	{
		breaks: "a guard does not compare owners",
		file:   "fence/mark.go", run: "TestAcceptedIsSerial|TestAfter",
		old: "m.Token == last.Token && m.Owner == last.Owner",
		new: "m.Token == last.Token",
	},
	{
		breaks: "a guard refuses the last hold",
		file:   "fence/mark.go", run: "TestAcceptedIsSerial|TestAfter",
		old: "|| m.Token == last.Token && m.Owner == last.Owner {",
		new: "{",
	},
	{
		breaks: "a guard forgets whom it let in",
		file:   "fence/memory.go", run: "TestGuards/Memory",
		old: "	s.last = m\n",
		new: "",
	},
	{
		breaks: "a later hold is let in while an operation runs",
		file:   "fence/memory.go", run: "TestGuardsExclude/Memory",
		old: "	defer func() { s.free <- struct{}{} }()\n",
		new: "	s.free <- struct{}{}\n",
	},
	{
		breaks: "a mark overwrites the one before",
		file:   "fence/file.go", run: "TestTornMark",
		old: "f.write(file, 1-slot, m)",
		new: "f.write(file, slot, m)",
	},
	{
		breaks: "a torn mark counts",
		file:   "fence/slot.go", run: "TestTornMark",
		old: "sum != fmt.Sprintf(\"%08x\", crc32.Checksum(text, castagnoli)) || ",
		new: "sum == \"\" || castagnoli == nil || ",
	},
	{
		breaks: "a file is read whoever came later",
		file:   "fence/file.go", run: "TestFile$",
		old: "	err = h.marks.do(ctx, h.mark, func(context.Context) error {\n		data, err = readFile(h.path)\n		return err\n	})\n	return data, err",
		new: "	return readFile(h.path)",
	},
	{
		breaks: "a server lets through what is about another lock",
		file:   "fence/http.go", run: "TestServerRefuses/OtherLock",
		old: "case m.Lock != want:",
		new: "case false:",
	},
	{
		breaks: "a header counts however it is written",
		file:   "fence/http.go", run: "TestServerRefuses",
		old: "if m.Header() != value {",
		new: "if false {",
	},
	{
		breaks: "a SQL guard does not look at who came last",
		file:   "fence/sql.go", pkg: "internal/guarded", run: "TestSQLUnderLoad",
		old: "	return m.After(last)\n",
		new: "	return nil\n",
	},
	{
		breaks: "a SQL guard lets the lesser token stay",
		file:   "fence/sql.go", pkg: "internal/guarded", run: "TestSQL$/MariaDB$",
		old: "token = GREATEST(token, VALUES(token))\"",
		new: "token = VALUES(token)\"",
	},
	{
		breaks: "a row lets a lesser token in",
		file:   "fence/columns.go", pkg: "internal/guarded", run: "TestColumns/SQLite",
		old: "\" OR \" + token + \" = \" + p(first+3) + \" AND \"",
		new: "\" OR \" + token + \" >= \" + p(first+3) + \" AND \" + p(first+4) + \" <> '' OR \"",
	},
	{
		breaks: "a row that is missing passes for a stale hold",
		file:   "fence/columns.go", pkg: "internal/guarded", run: "TestColumns/SQLite",
		old: "	case errors.Is(err, sql.ErrNoRows):\n",
		new: "	case errors.Is(err, sql.ErrNoRows) && false:\n",
	},
	{
		breaks: "Redis compares tokens as texts",
		file:   "redislock/redisfence/script/admit.lua", pkg: "internal/guarded", run: "TestRedis$",
		old: "#token < #last\n  or #token == #last and (token < last or",
		new: "#token == 0 or (token < last or",
	},
	{
		breaks: "Redis does not compare owners",
		file:   "redislock/redisfence/script/admit.lua", pkg: "internal/guarded", run: "TestRedis$",
		old: " and ARGV[3] ~= mark[3])",
		new: " and false)",
	},
}
