package cli

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sniblock/snib/driver"
)

// TestSchemas compares the page with the types of the documents, and the comments on their fields.
func TestSchemas(t *testing.T) {
	r := newReference(t)
	var b strings.Builder
	for _, schema := range slices.Sorted(maps.Keys(r.documents)) {
		fmt.Fprintf(&b, "### %s\n\n%s\n", schema, r.table(t, r.documents[schema]))
	}
	var parts []string
	for i := 0; i < len(r.parts); i++ { // a table may add parts
		parts = append(parts, fmt.Sprintf("### %s\n\n%s", title(r.parts[i]), r.table(t, r.parts[i])))
	}
	slices.Sort(parts)
	b.WriteString("## Parts of documents\n\n" + strings.Join(parts, "\n"))
	checkPage(t, "schemas.md", "<!-- begin: UPDATE=1 go test ./cmd/snib/internal/cli -run TestSchemas -->\n\n", b.String())
}

// A reference makes the tables of a page from the source of this package and of package backend.
type reference struct {
	types     map[string]ast.Expr
	documents map[string]string // the type of each schema
	parts     []string          // the types that the tables mention
}

func newReference(t *testing.T) *reference {
	r := &reference{types: make(map[string]ast.Expr), documents: make(map[string]string)}
	for _, dir := range []string{"../backend", "."} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool { r.add(n); return true })
		}
	}
	known := slices.Collect(maps.Values(r.documents))
	for name, typ := range r.types {
		s, ok := typ.(*ast.StructType)
		if !ok || s.Fields.NumFields() == 0 || slices.Contains(known, name) {
			continue
		}
		if key, _ := jsonKey(s.Fields.List[0]); key == "schema" {
			t.Errorf("nothing makes a %s with a schema such as snib.ls/1 as its first field", name)
		}
	}
	return r
}

// add remembers a type, or the schema of a document.
func (r *reference) add(n ast.Node) {
	switch n := n.(type) {
	case *ast.TypeSpec:
		r.types[n.Name.Name] = n.Type
	case *ast.CompositeLit:
		name, ok := n.Type.(*ast.Ident)
		if !ok || len(n.Elts) == 0 {
			return
		}
		first := n.Elts[0]
		if field, ok := first.(*ast.KeyValueExpr); ok {
			first = field.Value
		}
		if value, ok := first.(*ast.BasicLit); ok && regexp.MustCompile(`^"snib\.\w+/\d+"$`).MatchString(value.Value) {
			r.documents[strings.Trim(value.Value, `"`)] = name.Name
		}
	}
}

// table returns the fields of a type.
func (r *reference) table(t *testing.T, name string) string {
	return "| field | type | meaning |\n| --- | --- | --- |\n" + r.rows(t, name)
}

func (r *reference) rows(t *testing.T, name string) string {
	var b strings.Builder
	for _, f := range r.types[name].(*ast.StructType).Fields.List {
		meaning := strings.Join(strings.Fields(f.Doc.Text()+f.Comment.Text()), " ")
		switch key, optional := jsonKey(f); {
		case key == "schema", f.Tag == nil && f.Names != nil: // not in JSON
		case f.Names == nil:
			b.WriteString(r.rows(t, f.Type.(*ast.Ident).Name)) // JSON has them here, too
		case meaning == "":
			t.Errorf("%s.%s has no comment that says what it means", name, f.Names[0])
		default:
			fmt.Fprintf(&b, "| `%s` | %s%s | %s |\n", key, r.describe(f.Type), optional, meaning)
		}
	}
	return b.String()
}

// describe returns how JSON has values of a type.
func (r *reference) describe(typ ast.Expr) string {
	switch e := typ.(type) {
	case *ast.StarExpr:
		return r.describe(e.X)
	case *ast.ArrayType:
		return "array of " + r.describe(e.Elt)
	case *ast.SelectorExpr:
		return r.describe(e.Sel)
	case *ast.Ident:
		switch other := r.types[e.Name].(type) {
		case nil:
			return map[string]string{"string": "string", "bool": "boolean", "int": "integer", "uint64": "integer",
				"float64": "number", "HolderKind": "string"}[e.Name]
		case *ast.StructType:
			if !slices.Contains(r.parts, e.Name) {
				r.parts = append(r.parts, e.Name)
			}
			text := title(e.Name)
			return fmt.Sprintf("[%s](#%s)", strings.ToLower(text), strings.ToLower(strings.ReplaceAll(text, " ", "-")))
		default:
			return r.describe(other)
		}
	}
	return ""
}

// jsonKey returns the key of a field in JSON, or "" if it has none. optional is ", optional" if
// the field may be missing.
func jsonKey(f *ast.Field) (key, optional string) {
	if f.Tag == nil {
		return "", ""
	}
	tag, _ := strconv.Unquote(f.Tag.Value) // the compiler accepted it
	key, option, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
	if option == "omitempty" {
		optional = ", optional"
	}
	return key, optional
}

// title returns the name of a type as a heading: busyLockJSON becomes "Busy lock".
func title(name string) string {
	name = strings.TrimSuffix(name, "JSON")
	name = regexp.MustCompile(`[a-z][A-Z]`).ReplaceAllStringFunc(name, func(s string) string { return s[:1] + " " + strings.ToLower(s[1:]) })
	return strings.ToUpper(name[:1]) + name[1:]
}

// TestHiddenID checks that no digest is shown for an id that a lock service hides, as remotelock
// has it: nothing would take the digest.
func TestHiddenID(t *testing.T) {
	h := driver.Holding{ID: "token:7", Token: 7}
	if got := toHolder(h).IDDigest; got != "" || findHold(driver.Status{Holders: []driver.Holding{h}}, "") != nil {
		t.Errorf("digest = %q, want none, and that no id finds the hold", got)
	}
	if got := toHolder(driver.Holding{ID: "token:abc", Foreign: "a value"}).IDDigest; got == "" {
		t.Error("a foreign value that begins like a hidden id has no digest")
	}
	for id, token := range map[string]uint64{"token:7": 7, "token:0": 0} { // the service ends holds by their tokens
		k := leak{kind: leakEndless, hold: &driver.Holding{ID: id, Token: token}}
		if got := new(leaksCommand).isRepairable(k); got != (token != 0) {
			t.Errorf("isRepairable = %v for the hidden id %s", got, id)
		}
	}
	if got := toWaiter(driver.Waiting{ID: "token:web-1:7"}).IDDigest; got != "" {
		t.Errorf("digest of a waiter = %q, want none", got)
	}
}
