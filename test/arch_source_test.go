package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Caps on the maximum, not on the average: the trouble is never the median file, it is the one that everything falls into.
const (
	maxFileLines   = 600
	maxFuncLines   = 80
	maxMethods     = 5
	maxPackageSize = 15 // files that are not tests
)

// source is one parsed Go file of the repository.
type source struct {
	name  string // slash path from the root
	file  *ast.File
	lines int
}

func (s source) folder() string  { return path.Dir(s.name) }
func (s source) test() bool      { return strings.HasSuffix(s.name, "_test.go") }
func (s source) generated() bool { return ast.IsGenerated(s.file) }
func (s source) unsafeNamed() bool {
	return strings.HasSuffix(strings.TrimSuffix(s.name, "_test.go"), "_unsafe.go") || strings.HasSuffix(s.name, "_unsafe_test.go")
}

var files = token.NewFileSet()

// parsed is every Go file under the root, whatever its build constraints: rules hold on all platforms.
var parsed = sync.OnceValues(func() ([]source, error) {
	var all []source
	err := filepath.WalkDir(root(), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != root() && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "bin", "sdk"}, d.Name())) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(p, ".go") {
			return nil
		}
		f, err := parser.ParseFile(files, p, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root(), p)
		if err != nil {
			return err
		}
		all = append(all, source{filepath.ToSlash(rel), f, files.File(f.FileStart).LineCount()})
		return nil
	})
	return all, err
})

func sources(t *testing.T) []source {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// exceptions answers from one table and fails the test for lines that nothing needed.
type exceptions struct {
	table map[string]string
	used  map[string]bool
}

func except(t *testing.T, table map[string]string) *exceptions {
	e := &exceptions{table, map[string]bool{}}
	t.Cleanup(func() {
		for k, why := range table {
			if !e.used[k] {
				t.Errorf("exception %q is not needed any more", k)
			}
			if why == "" {
				t.Errorf("exception %q has no reason", k)
			}
		}
	})
	return e
}

func (e *exceptions) has(key string) bool {
	_, ok := e.table[key]
	e.used[key] = e.used[key] || ok
	return ok
}

func TestSizes(t *testing.T) {
	ok := except(t, sizeExceptions)
	inFolder := map[string]int{}
	for _, s := range sources(t) {
		if s.generated() {
			continue
		}
		if s.lines > maxFileLines && !ok.has(s.name) {
			t.Errorf("%s has %d lines, at most %d", s.name, s.lines, maxFileLines)
		}
		if !s.test() {
			inFolder[s.folder()]++
		}
		interfaces := map[string]*ast.InterfaceType{}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				n := files.Position(d.End()).Line - files.Position(d.Pos()).Line + 1
				if n > maxFuncLines && !ok.has(s.name+":"+d.Name.Name) {
					t.Errorf("%s: %s has %d lines, at most %d", s.name, d.Name.Name, n, maxFuncLines)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if ts, isType := spec.(*ast.TypeSpec); isType {
						if it, isInterface := ts.Type.(*ast.InterfaceType); isInterface {
							interfaces[ts.Name.Name] = it
						}
					}
				}
			}
		}
		for name, it := range interfaces {
			if n := methods(it, interfaces); n > maxMethods && !ok.has(s.name+":"+name) {
				t.Errorf("%s: interface %s has %d methods, at most %d", s.name, name, n, maxMethods)
			}
		}
	}
	for folder, n := range inFolder {
		if n > maxPackageSize && !ok.has(folder+"/") {
			t.Errorf("%s has %d files, at most %d", folder, n, maxPackageSize)
		}
	}
}

// methods counts with what is embedded from the same file; an embedded foreign interface counts as one.
func methods(it *ast.InterfaceType, known map[string]*ast.InterfaceType) int {
	n := 0
	for _, f := range it.Methods.List {
		id, embedded := f.Type.(*ast.Ident)
		switch {
		case embedded && known[id.Name] != nil:
			n += methods(known[id.Name], known)
		default:
			n += max(1, len(f.Names))
		}
	}
	return n
}

func TestOnePackageDoc(t *testing.T) {
	docs, seen := map[string][]string{}, map[string]string{}
	for _, s := range sources(t) {
		if s.test() && s.folder() != "test" || s.generated() {
			continue
		}
		seen[s.folder()] = s.file.Name.Name
		if s.file.Doc == nil {
			continue
		}
		text := s.file.Doc.Text()
		if text == "" { // directives only
			continue
		}
		docs[s.folder()] = append(docs[s.folder()], s.name)
		want := "Package " + s.file.Name.Name + " "
		if s.file.Name.Name == "main" {
			want = "Command " + path.Base(s.folder()) + " "
		}
		if !strings.HasPrefix(text, want) {
			t.Errorf("%s: the package doc does not begin with %q", s.name, want)
		}
	}
	for folder := range seen {
		if len(docs[folder]) != 1 {
			t.Errorf("%s has %d package docs, not one: %v", folder, len(docs[folder]), docs[folder])
		}
	}
}

// forbidden maps a call to the reason; "test:" ones hold in tests, "code:" ones elsewhere, others everywhere.
var forbidden = map[string]string{
	"os.Create":         "it truncates what a link points to: os.OpenFile with explicit flags, or os.Root",
	"os.IsNotExist":     "it does not unwrap: errors.Is",
	"os.IsExist":        "it does not unwrap: errors.Is",
	"os.IsPermission":   "it does not unwrap: errors.Is",
	"test:time.Sleep":   "a test that sleeps is slow or flaky: wait for what it waits for",
	"code:panic":        "an error is returned; a bug that cannot be one needs a comment on its line that says why it cannot happen",
	"code:log.Fatal":    "main alone ends the program",
	"code:log.Printf":   "log/slog, passed in",
	"code:log.Println":  "log/slog, passed in",
	"code:slog.Default": "the logger is passed in",
}

func TestForbiddenCalls(t *testing.T) {
	ok := except(t, callExceptions)
	for _, s := range sources(t) {
		explained := map[int]bool{} // lines that end in a comment
		for _, c := range s.file.Comments {
			explained[files.Position(c.Pos()).Line] = true
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, isCall := n.(*ast.CallExpr)
			if !isCall {
				return true
			}
			name := ""
			switch fun := call.Fun.(type) {
			case *ast.Ident:
				name = fun.Name
			case *ast.SelectorExpr:
				if x, isIdent := fun.X.(*ast.Ident); isIdent {
					name = x.Name + "." + fun.Sel.Name
				}
			}
			where := "code:"
			if s.test() {
				where = "test:"
			}
			for _, key := range []string{name, where + name} {
				if name == "panic" && explained[files.Position(call.Pos()).Line] {
					continue
				}
				if why, bad := forbidden[key]; bad && !ok.has(s.name+": "+name) {
					t.Errorf("%s: %s: %s", files.Position(call.Pos()), name, why)
				}
			}
			return true
		})
	}
}

func TestImportsOfFiles(t *testing.T) {
	for _, s := range sources(t) {
		for _, imp := range s.file.Imports {
			p, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case p == "C":
				t.Errorf("%s uses cgo", s.name)
			case p == "unsafe" && !s.unsafeNamed() && !s.generated():
				t.Errorf("%s imports unsafe and is not named *_unsafe.go", s.name)
			case imp.Name != nil && imp.Name.Name == "." && !s.test():
				t.Errorf("%s imports %s into its own names", s.name, p)
			}
		}
	}
}

// TestNoHiddenWiring: no init functions and no package variables that change; what a program is made of is written in cmd.
func TestNoHiddenWiring(t *testing.T) {
	vars := map[string]map[string]bool{}
	for _, s := range sources(t) {
		if vars[s.folder()] == nil {
			vars[s.folder()] = map[string]bool{}
		}
		for _, d := range s.file.Decls {
			if f, isFunc := d.(*ast.FuncDecl); isFunc && f.Name.Name == "init" && f.Recv == nil && !s.generated() {
				t.Errorf("%s: init: wiring is written, not discovered", files.Position(f.Pos()))
			}
			if g, isGen := d.(*ast.GenDecl); isGen && g.Tok == token.VAR {
				for _, spec := range g.Specs {
					for _, id := range spec.(*ast.ValueSpec).Names {
						vars[s.folder()][id.Name] = true
					}
				}
			}
		}
	}
	ok := except(t, globalExceptions)
	for _, s := range sources(t) {
		if s.generated() || s.test() {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			var targets []ast.Expr
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					targets = n.Lhs
				}
			case *ast.IncDecStmt:
				targets = []ast.Expr{n.X}
			}
			for _, target := range targets {
				if id := base(target); id != nil && id.Name != "_" && vars[s.folder()][id.Name] && packageLevel(s.file, id) && !ok.has(s.name+": "+id.Name) {
					t.Errorf("%s: %s is a package variable and is changed", files.Position(id.Pos()), id.Name)
				}
			}
			return true
		})
	}
}

// base returns x of x, x[i] and x.f.
func base(e ast.Expr) *ast.Ident {
	for {
		switch v := e.(type) {
		case *ast.Ident:
			return v
		case *ast.IndexExpr:
			e = v.X
		case *ast.SelectorExpr:
			e = v.X
		default:
			return nil
		}
	}
}

// packageLevel reports whether id, whose name is that of a package variable, means it: the parser resolves names within a
// file and leaves those of other files open, which is all that is needed here.
func packageLevel(f *ast.File, id *ast.Ident) bool {
	return id.Obj == nil || f.Scope.Lookup(id.Name) == id.Obj //nolint:staticcheck // see above: no types are needed
}

// generatedName: a build constraint's suffix may follow.
var generatedName = regexp.MustCompile(`_gen(_[a-z0-9]+)*\.go$`)

func TestGeneratedCodeHasItsPlace(t *testing.T) {
	ok := except(t, generatedExceptions)
	for _, s := range sources(t) {
		marked := strings.HasPrefix(s.name, "api/gen/") || generatedName.MatchString(s.name)
		if s.generated() != marked && !ok.has(s.name) {
			t.Errorf("%s: generated code is marked as such, and is in api/gen or named *_gen.go; nothing else is", s.name)
		}
	}
}
