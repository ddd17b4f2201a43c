package access

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// A table is one table of a policy file. Its errors name the line.
type table struct {
	meta   *toml.MetaData
	path   toml.Key // empty: the whole file
	self   toml.Primitive
	values map[string]toml.Primitive
}

// parseTable parses a whole file.
func parseTable(text string) (table, error) {
	var t table
	meta, err := toml.Decode(text, &t.values)
	if err != nil {
		return table{}, lineError(err)
	}
	t.meta = &meta
	return t, nil
}

// String returns the name of the table as it stands in the file, such as "token.ci".
func (t table) String() string {
	if len(t.path) == 0 {
		return "the file"
	}
	return t.path.String()
}

// decode stores the values of the table in fields, which are pointers. A value that has no
// field is an error.
func (t table) decode(fields map[string]any) error {
	for _, key := range t.keys() {
		field, ok := fields[key]
		if !ok {
			known := strings.Join(slices.Sorted(maps.Keys(fields)), ", ")
			return t.errorAt(key, "%s has no setting %q; it may have %s", t, key, known)
		}
		if err := t.meta.PrimitiveDecode(t.values[key], field); err != nil {
			return lineError(err)
		}
	}
	return nil
}

// A section is a place for tables, which decode leaves to [table.tables].
type section struct{}

// UnmarshalTOML implements [toml.Unmarshaler].
func (section) UnmarshalTOML(any) error { return nil }

// tables calls f with each table of a section, in the order of the file.
func (t table) tables(section string, f func(name string, sub table) error) error {
	p, ok := t.values[section]
	if !ok {
		return nil
	}
	parent, err := t.sub(section, p)
	if err != nil {
		return err
	}
	for _, name := range parent.keys() {
		sub, err := parent.sub(name, parent.values[name])
		if err != nil {
			return err
		}
		if err := f(name, sub); err != nil {
			return err
		}
	}
	return nil
}

// sub returns a table of the table.
func (t table) sub(key string, p toml.Primitive) (table, error) {
	sub := table{meta: t.meta, path: append(slices.Clone(t.path), key), self: p}
	// A table that only the names of others imply has no type.
	if kind := t.meta.Type(sub.path...); kind != "Hash" && kind != "" {
		return table{}, t.errorAt(key, "%s must be a table, so write [%s.NAME] and the settings below it", sub, sub.path[:max(1, len(sub.path)-1)])
	}
	if err := t.meta.PrimitiveDecode(p, &sub.values); err != nil {
		return table{}, lineError(err)
	}
	return sub, nil
}

// keys returns the names of the values in the order of the file.
func (t table) keys() []string {
	var keys []string
	for _, k := range t.meta.Keys() {
		if depth := len(t.path); len(k) > depth && slices.Equal(k[:depth], t.path) && !slices.Contains(keys, k[depth]) {
			keys = append(keys, k[depth])
		}
	}
	return keys
}

// errorAt returns an error about the value of key, or about the table if it has no such value.
func (t table) errorAt(key, format string, args ...any) error {
	p, ok := t.values[key]
	if !ok {
		p = t.self
	} else if t.meta.Type(append(slices.Clone(t.path), key)...) == "" {
		// A table that only the names of others imply has no line, but the first of those has one.
		if sub, err := t.sub(key, p); err == nil {
			return sub.errorAt(sub.keys()[0], format, args...)
		}
	}
	return lineError(t.meta.PrimitiveDecode(p, rejection{fmt.Errorf(format, args...)}))
}

// errorf returns an error about the whole table.
func (t table) errorf(format string, args ...any) error { return t.errorAt("", format, args...) }

// A rejection is a destination that takes no value. So the decoder returns its error, with the
// line of the value.
type rejection struct{ err error }

// UnmarshalTOML implements [toml.Unmarshaler].
func (r rejection) UnmarshalTOML(any) error { return r.err }

// lineError returns an error of the decoder as "line N: what was wrong".
func lineError(err error) error {
	var p toml.ParseError
	if !errors.As(err, &p) {
		return errors.New(strings.TrimPrefix(err.Error(), "toml: "))
	}
	if p.Position.Line == 0 {
		return errors.New(p.Message)
	}
	return fmt.Errorf("line %d: %s", p.Position.Line, p.Message)
}
