package xebec

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The tables of ARCHITECTURE.md are compared with the sources: which package imports what, and which limit has which value.

// TestDocsPackages: the table of packages has every package that the program consists of, with what it really imports.
func TestDocsPackages(t *testing.T) {
	rows := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z/]+)` \\| [^|]+ \\| ((?:`[a-z/]+` ?)+|none )\\|$").FindAllStringSubmatch(read(t, architecturePage), -1) {
		rows[m[1]] = strings.Fields(strings.ReplaceAll(strings.TrimSuffix(m[2], "none "), "`", ""))
	}
	built := []string{"gateway/cmd/xebec", "worker/bindings/go", "worker/workertest"}
	for i := 0; i < len(built); i++ { // it grows by what is imported
		dir := built[i]
		files, err := parseDir(token.NewFileSet(), dir)
		if err != nil {
			t.Fatal(err)
		}
		var imports []string
		for _, f := range files {
			for _, imp := range f.Imports {
				if sub, ours := cutModule(strings.Trim(imp.Path.Value, `"`)); ours && !slices.Contains(imports, sub) {
					imports = append(imports, sub)
				}
			}
		}
		slices.Sort(imports)
		for _, sub := range imports {
			if !slices.Contains(built, sub) {
				built = append(built, sub)
			}
		}
		if row, there := rows[dir]; !there || !slices.Equal(row, imports) {
			t.Errorf("%s says that %s imports %v (a row: %v): it imports %v", architecturePage, dir, row, there, imports)
		}
	}
	for dir := range rows {
		if !slices.Contains(built, dir) {
			t.Errorf("%s has a row for %s, which is no part of the program", architecturePage, dir)
		}
	}
}

var limitRow = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]+) \\| `([^`]+\\.go)` \\|")

// TestDocsLimits: every bound in the table has the name and the value that the code gives it.
func TestDocsLimits(t *testing.T) {
	_, table, _ := strings.Cut(read(t, architecturePage), "\n## Limits")
	rows := limitRow.FindAllStringSubmatch(table, -1)
	if len(rows) == 0 {
		t.Fatalf("%s: no table of limits", architecturePage)
	}
	for _, row := range rows {
		name, value, file := row[1], strings.TrimSpace(row[2]), row[3]
		want, err := quantity(value)
		if err != nil {
			t.Errorf("%s: %s: %v", architecturePage, name, err)
			continue
		}
		got, err := valueIn(file, name)
		if err != nil {
			t.Errorf("%s: %v", architecturePage, err)
		} else if got != want {
			t.Errorf("%s: %s is %s (%d): %s has %d", architecturePage, name, value, want, file, got)
		}
	}
}

// quantity reads "16,384", "64 KiB" in bytes, "30 s" in nanoseconds.
func quantity(s string) (int64, error) {
	number, unit, _ := strings.Cut(s, " ")
	factor, ok := map[string]int64{
		"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
		"µs": int64(time.Microsecond), "ms": int64(time.Millisecond), "s": int64(time.Second), "min": int64(time.Minute),
	}[unit]
	if !ok {
		return 0, fmt.Errorf("%q: unknown unit", s)
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(number, ",", ""), 10, 64)
	return n * factor, err
}

// valueIn evaluates what a file sets a name to: in a constant, a variable, a field of a literal, or an assignment to a field.
func valueIn(file, name string) (int64, error) {
	fset := token.NewFileSet()
	dir := filepath.Dir(file)
	files, err := parseDir(fset, dir)
	if err != nil {
		return 0, err
	}
	var wanted *ast.File
	for _, f := range files {
		if fset.File(f.FileStart).Name() == filepath.Base(file) {
			wanted = f
		}
	}
	if wanted == nil {
		return 0, fmt.Errorf("%s does not exist", file)
	}
	// Constants are worked out although most imports are not there: of those only units and our own nouns matter.
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	conf := types.Config{Importer: fewImports{}, Error: func(error) {}}
	conf.Check(dir, fset, files, info)

	var found ast.Expr
	ast.Inspect(wanted, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, id := range n.Names {
				if id.Name == name && i < len(n.Values) {
					found = n.Values[i]
				}
			}
		case *ast.KeyValueExpr:
			if id, ok := n.Key.(*ast.Ident); ok && id.Name == name && info.Types[n.Value].Value != nil {
				found = n.Value
			}
		case *ast.AssignStmt:
			for i, lhs := range n.Lhs {
				if sel, ok := lhs.(*ast.SelectorExpr); ok && sel.Sel.Name == name && len(n.Rhs) == len(n.Lhs) && info.Types[n.Rhs[i]].Value != nil {
					found = n.Rhs[i]
				}
			}
		}
		return true
	})
	if found == nil {
		return 0, fmt.Errorf("%s does not set %s", file, name)
	}
	value := info.Types[found].Value
	if value == nil {
		return 0, fmt.Errorf("%s: the value of %s cannot be worked out", file, name)
	}
	if n, ok := constant.Int64Val(constant.ToInt(value)); ok {
		return n, nil
	}
	return 0, fmt.Errorf("%s: %s is %s: expected a whole number", file, name, value)
}

// fewImports imports what values of limits are made of: of package time the units of duration, of ours package api.
type fewImports struct{}

func (few fewImports) Import(name string) (*types.Package, error) {
	if name == module+"/api" {
		fset := token.NewFileSet()
		files, err := parseDir(fset, "api")
		if err != nil {
			return nil, err
		}
		conf := types.Config{Importer: few, Error: func(error) {}}
		pkg, _ := conf.Check("api", fset, files, nil) // incomplete, but for its constants and simple types
		return pkg, nil
	}
	if name != "time" {
		return nil, fmt.Errorf("%s is left out", name)
	}
	pkg := types.NewPackage("time", "time")
	duration := types.NewNamed(types.NewTypeName(token.NoPos, pkg, "Duration", nil), types.Typ[types.Int64], nil)
	pkg.Scope().Insert(duration.Obj())
	for unit, d := range map[string]time.Duration{"Microsecond": time.Microsecond, "Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour} {
		pkg.Scope().Insert(types.NewConst(token.NoPos, pkg, unit, duration, constant.MakeInt64(int64(d))))
	}
	pkg.MarkComplete()
	return pkg, nil
}

// parseDir parses the files of a package, without its tests, in the order of their names.
func parseDir(fset *token.FileSet, dir string) ([]*ast.File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		src, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(fset, e.Name(), src, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}
