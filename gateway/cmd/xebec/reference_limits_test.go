package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/gateway/internal/numerals"
)

// A limit is a constant, a field of a literal or an assignment with a comment `//xebec:limit WHAT IT BOUNDS` at its line, or on the line
// above it.
const limitDirective = "//xebec:limit "

type limit struct{ name, value, bounds string }

// limitPage has every limit, by package.
func limitPage(t *testing.T) string {
	byPackage := map[string][]limit{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if base := d.Name(); name != root && (base == "testdata" || base == "bench" || base == "build" || strings.HasPrefix(base, ".")) {
			return fs.SkipDir
		}
		limits, err := limitsOf(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if len(limits) > 0 {
			dir, _ := filepath.Rel(root, name)
			byPackage[filepath.ToSlash(dir)] = limits
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b := newPage("Limits", "Every queue, and every size that a client, a worker or an author can choose, has a bound with a name. The flags and fields named here change their bounds;\n"+
		"the other bounds are constants.")
	for _, dir := range slices.Sorted(maps.Keys(byPackage)) {
		fmt.Fprintf(b, "\n## `%s`\n", dir)
		addTable(b, "name", "value", "what it bounds")
		for _, l := range byPackage[dir] {
			addRow(b, code(l.name), l.value, l.bounds)
		}
	}
	return b.String()
}

// TestLimitsOfSpecsAreDocumented: what bounds a declaration is on the page.
func TestLimitsOfSpecsAreDocumented(t *testing.T) {
	limits, err := limitsOf(root + "/api")
	if err != nil {
		t.Fatal(err)
	}
	files, err := parseSources(token.NewFileSet(), root+"/api")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || !regexp.MustCompile(`^Max[A-Z]`).MatchString(spec.Names[0].Name) {
				return true
			}
			if name := spec.Names[0].Name; !slices.ContainsFunc(limits, func(l limit) bool { return l.name == name }) {
				t.Errorf("api: %s has no comment %sWHAT IT BOUNDS", name, limitDirective)
			}
			return true
		})
	}
}

func limitsOf(dir string) (limits []limit, err error) {
	fset := token.NewFileSet()
	files, err := parseSources(fset, dir)
	if err != nil {
		return nil, err
	}
	var info *types.Info
	for _, file := range files {
		for _, group := range file.Comments {
			for _, c := range group.List {
				bounds, ok := strings.CutPrefix(c.Text, limitDirective)
				if !ok {
					continue
				}
				if info == nil { // most packages have none
					info = evaluate(fset, dir, files)
				}
				line := fset.Position(c.Pos()).Line
				name, value := valueAt(fset, file, line)
				if value == nil {
					name, value = valueAt(fset, file, line+1)
				}
				if value == nil {
					return nil, fmt.Errorf("line %d: no value has the comment %q", line, c.Text)
				}
				known := info.Types[value]
				if known.Value == nil {
					return nil, fmt.Errorf("line %d: the value of %s cannot be computed", line, name)
				}
				limits = append(limits, limit{name, quantity(name, known), bounds})
			}
		}
	}
	return limits, nil
}

// valueAt finds the name that a line sets, and to what.
func valueAt(fset *token.FileSet, file *ast.File, line int) (name string, value ast.Expr) {
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil || fset.Position(n.Pos()).Line > line || fset.Position(n.End()).Line < line {
			return false
		}
		if fset.Position(n.Pos()).Line != line {
			return true
		}
		switch n := n.(type) {
		case *ast.ValueSpec:
			if len(n.Values) == 1 {
				name, value = n.Names[0].Name, n.Values[0]
			}
		case *ast.KeyValueExpr:
			if id, ok := n.Key.(*ast.Ident); ok {
				name, value = id.Name, n.Value
			}
		case *ast.AssignStmt:
			if sel, ok := n.Lhs[0].(*ast.SelectorExpr); ok && len(n.Rhs) == 1 {
				name, value = sel.Sel.Name, n.Rhs[0]
			}
		}
		return true
	})
	return name, value
}

// quantity writes a value with its unit, which follows from its type or from its name.
func quantity(name string, v types.TypeAndValue) string {
	n, exact := constant.Int64Val(constant.ToInt(v.Value))
	if !exact {
		return v.Value.String()
	}
	bytes := strings.HasSuffix(name, "Bytes") || strings.HasPrefix(name, "firstSegment")
	switch {
	case strings.HasSuffix(name, "Nanos") || v.Type.String() == "time.Duration":
		return duration(time.Duration(n))
	case bytes:
		for _, unit := range []string{"B", "KiB", "MiB", "GiB", "TiB"} {
			if n < 1024 || n%1024 != 0 {
				return numerals.Thousands(float64(n)) + " " + unit
			}
			n /= 1024
		}
	}
	return numerals.Thousands(float64(n))
}

func duration(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if d >= unit.of && d%unit.of == 0 {
			return fmt.Sprintf("%d %s", d/unit.of, unit.name)
		}
	}
	return fmt.Sprintf("%g µs", float64(d)/float64(time.Microsecond))
}

// evaluate computes the constants of a package although most of its imports are missing: limits are made of units of time and
// of constants of package api.
func evaluate(fset *token.FileSet, dir string, files []*ast.File) *types.Info {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	conf := types.Config{Importer: fewImports{}, Error: func(error) {}}
	conf.Check(dir, fset, files, info)
	return info
}

// fewImports imports time's units and package api.
type fewImports struct{}

func (few fewImports) Import(name string) (*types.Package, error) {
	switch name {
	case "github.com/xebec-serving/xebec/api":
		fset := token.NewFileSet()
		files, err := parseSources(fset, root+"/api")
		if err != nil {
			return nil, err
		}
		conf := types.Config{Importer: few, Error: func(error) {}}
		pkg, _ := conf.Check("api", fset, files, nil) // incomplete, but for its constants and simple types
		return pkg, nil
	case "time":
		pkg := types.NewPackage("time", "time")
		duration := types.NewNamed(types.NewTypeName(token.NoPos, pkg, "Duration", nil), types.Typ[types.Int64], nil)
		pkg.Scope().Insert(duration.Obj())
		for unit, d := range map[string]time.Duration{
			"Nanosecond": time.Nanosecond, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
		} {
			pkg.Scope().Insert(types.NewConst(token.NoPos, pkg, unit, duration, constant.MakeInt64(int64(d))))
		}
		pkg.MarkComplete()
		return pkg, nil
	}
	return nil, fmt.Errorf("%s is left out", name)
}

// parseSources parses the Go files of a directory without its tests.
func parseSources(fset *token.FileSet, dir string) (files []*ast.File, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, filepath.Join(dir, e.Name()), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}
