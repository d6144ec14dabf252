package sim

import (
	"fmt"
	"strings"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"

	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// The scripts run as they are, but a general interpreter of Lua took half of the time of all histories. So each is compiled once into Go
// functions. This knows the part of Lua that the scripts use and panics when it meets another, as soon as a script is compiled. Functions are
// no values: each call names a local function, or one of Redis's. TestCompiledScriptsRunAsLua holds it against the interpreter.

// machine runs compiled scripts. It keeps nothing between two calls but memory to be used again.
type machine struct {
	compiled   map[redislink.Script]*function
	server     *redis // that the script in progress talks to
	keys, argv *luaTable
	args       []string    // of redis.call, of those in progress
	values     []value     // of lists of expressions, of those in progress
	tables     []*luaTable // that the script in progress has made; then those that are used again
	made       int
}

func newMachine() *machine {
	return &machine{compiled: map[redislink.Script]*function{}, keys: &luaTable{}, argv: &luaTable{}}
}

// function is a compiled function, or a whole script.
type function struct {
	params int
	slots  int // of all its variables
	body   []statement
	unused []*frame
}

// frame is a call of a function.
type frame struct {
	up      *frame // of the function in which it was written
	at      []value
	results []value
}

type (
	statement  func(f *frame) control
	expression func(f *frame) value
	condition  func(f *frame) bool
	// list appends values to machine.values: those of an expression that has any number of them, or of several.
	list func(f *frame)
)

// control is how a statement ended.
type control byte

const (
	goesOn control = iota
	breaks
	returns
)

// raised is an error that a script raises.
type raised struct{ of value }

func raise(format string, args ...any) {
	t := &luaTable{}
	t.set(word("err"), word("ERR "+fmt.Sprintf(format, args...)))
	panic(raised{value{kind: isTable, t: t}})
}

func execute(f *frame, body []statement) control {
	for _, s := range body {
		if how := s(f); how != goesOn {
			return how
		}
	}
	return goesOn
}

// enter begins a call.
func (fn *function) enter(up *frame) *frame {
	if n := len(fn.unused); n > 0 {
		f := fn.unused[n-1]
		fn.unused = fn.unused[:n-1]
		f.up, f.results = up, f.results[:0]
		return f
	}
	return &frame{up: up, at: make([]value, fn.slots)}
}

// run executes a script on a server.
func (m *machine) run(server *redis, s redislink.Script, keys, args []string) (v resp.Value) {
	fn := m.compiled[s]
	if fn == nil {
		fn = m.compile(s.Text())
		m.compiled[s] = fn
	}
	m.server, m.made, m.args, m.values = server, 0, m.args[:0], m.values[:0]
	m.keys.setTexts(keys)
	m.argv.setTexts(args)
	defer func() {
		if e := recover(); e != nil {
			failed, ok := e.(raised)
			if !ok {
				panic(e)
			}
			v = failed.of.reply()
		}
	}()
	f := fn.enter(nil)
	execute(f, fn.body)
	if len(f.results) > 0 {
		v = f.results[0].reply()
	} else {
		v = value{}.reply()
	}
	fn.unused = append(fn.unused, f)
	return v
}

// scope is what is known while a function is compiled.
type scope struct {
	*machine
	fn     *function
	parent *scope
	names  []binding
}

// binding is a local variable, or a local function.
type binding struct {
	name string
	slot int
	fn   *function
}

func (m *machine) compile(script string) *function {
	chunk, err := parse.Parse(strings.NewReader(script), "script")
	if err != nil {
		panic(err)
	}
	s := &scope{machine: m, fn: &function{}}
	s.bind("KEYS")
	s.bind("ARGV")
	begin := func(f *frame) control {
		f.at[0], f.at[1] = value{kind: isTable, t: m.keys}, value{kind: isTable, t: m.argv}
		return goesOn
	}
	s.fn.body = append([]statement{begin}, s.block(chunk)...)
	return s.fn
}

func (s *scope) bind(name string) (slot int) {
	slot = s.fn.slots
	s.fn.slots++
	s.names = append(s.names, binding{name: name, slot: slot})
	return slot
}

// find returns what a name means and how many functions further out it was bound; nil: it is none of the script's.
func (s *scope) find(name string) (b *binding, depth int) {
	for ; s != nil; s = s.parent {
		for i := len(s.names) - 1; i >= 0; i-- {
			if s.names[i].name == name {
				return &s.names[i], depth
			}
		}
		depth++
	}
	return nil, 0
}

func (f *frame) outer(depth int) *frame {
	for ; depth > 0; depth-- {
		f = f.up
	}
	return f
}

// block compiles statements with a scope of their own.
func (s *scope) block(all []ast.Stmt) (body []statement) {
	names := len(s.names)
	body = s.open(all)
	s.names = s.names[:names]
	return body
}

// open is block, but what it binds stays bound.
func (s *scope) open(all []ast.Stmt) (body []statement) {
	for _, one := range all {
		if st := s.statement(one); st != nil {
			body = append(body, st)
		}
	}
	return body
}

func (s *scope) statement(st ast.Stmt) statement {
	switch st := st.(type) {
	case *ast.LocalAssignStmt:
		return s.local(st)
	case *ast.AssignStmt:
		return s.assign(st)
	case *ast.FuncCallStmt:
		call := s.expression(st.Expr)
		return func(f *frame) control { call(f); return goesOn }
	case *ast.DoBlockStmt:
		body := s.block(st.Stmts)
		return func(f *frame) control { return execute(f, body) }
	case *ast.IfStmt:
		is, then, other := s.condition(st.Condition), s.block(st.Then), s.block(st.Else)
		return func(f *frame) control {
			if is(f) {
				return execute(f, then)
			}
			return execute(f, other)
		}
	case *ast.ReturnStmt:
		if len(st.Exprs) == 1 && s.many(st.Exprs[0]) == nil {
			e := s.expression(st.Exprs[0])
			return func(f *frame) control { f.results = append(f.results[:0], e(f)); return returns }
		}
		all := s.list(st.Exprs)
		return func(f *frame) control {
			base := len(s.values)
			all(f)
			f.results = append(f.results[:0], s.values[base:]...)
			s.values = s.values[:base]
			return returns
		}
	case *ast.BreakStmt:
		return func(*frame) control { return breaks }
	}
	return s.loop(st)
}

func (s *scope) loop(st ast.Stmt) statement {
	names := len(s.names)
	defer func() { s.names = s.names[:names] }()
	switch st := st.(type) {
	case *ast.WhileStmt:
		is, body := s.condition(st.Condition), s.block(st.Stmts)
		return func(f *frame) control {
			for is(f) {
				if how := execute(f, body); how != goesOn {
					return how &^ breaks
				}
			}
			return goesOn
		}
	case *ast.RepeatStmt:
		body := s.open(st.Stmts)
		until := s.condition(st.Condition)
		return func(f *frame) control {
			for {
				if how := execute(f, body); how != goesOn {
					return how &^ breaks
				}
				if until(f) {
					return goesOn
				}
			}
		}
	case *ast.NumberForStmt:
		first, last, step := s.expression(st.Init), s.expression(st.Limit), constant(number(1))
		if st.Step != nil {
			step = s.expression(st.Step)
		}
		slot := s.bind(st.Name)
		body := s.block(st.Stmts)
		return func(f *frame) control {
			i, to, by := first(f).number(), last(f).number(), step(f).number()
			for ; by > 0 && i <= to || by < 0 && i >= to; i += by {
				f.at[slot] = number(i)
				if how := execute(f, body); how != goesOn {
					return how &^ breaks
				}
			}
			return goesOn
		}
	case *ast.GenericForStmt:
		call := st.Exprs[0].(*ast.FuncCallExpr)
		of, name := s.expression(call.Args[0]), call.Func.(*ast.IdentExpr).Value
		key, item := s.bind(st.Names[0]), -1
		if len(st.Names) > 1 {
			item = s.bind(st.Names[1])
		}
		body := s.block(st.Stmts)
		return func(f *frame) control {
			t := of(f).table()
			for i := 0; ; i++ {
				k, v, more := t.pair(i, name == "pairs")
				if !more {
					return goesOn
				}
				if v.kind == isNil {
					continue
				}
				if f.at[key] = k; item >= 0 {
					f.at[item] = v
				}
				if how := execute(f, body); how != goesOn {
					return how &^ breaks
				}
			}
		}
	}
	panic(fmt.Sprintf("a script uses %T", st))
}

// local compiles "local a, b = x, y" and "local function f".
func (s *scope) local(st *ast.LocalAssignStmt) statement {
	if len(st.Exprs) == 1 {
		if e, ok := st.Exprs[0].(*ast.FunctionExpr); ok {
			fn := &function{params: len(e.ParList.Names)}
			s.names = append(s.names, binding{name: st.Names[0], fn: fn})
			inner := &scope{machine: s.machine, fn: fn, parent: s}
			for _, name := range e.ParList.Names {
				inner.bind(name)
			}
			fn.body = inner.block(e.Stmts)
			return nil
		}
	}
	if len(st.Names) == 1 && len(st.Exprs) == 1 {
		e := s.expression(st.Exprs[0])
		slot := s.bind(st.Names[0])
		return func(f *frame) control { f.at[slot] = e(f); return goesOn }
	}
	if n := len(st.Exprs); n == len(st.Names) && s.many(st.Exprs[n-1]) == nil {
		singles := make([]expression, n)
		for i, e := range st.Exprs {
			singles[i] = s.expression(e)
		}
		first := s.fn.slots
		for _, name := range st.Names {
			s.bind(name)
		}
		return func(f *frame) control {
			for i, e := range singles { // none of them can see the new variables
				f.at[first+i] = e(f)
			}
			return goesOn
		}
	}
	all := s.list(st.Exprs)
	first := s.fn.slots
	for _, name := range st.Names {
		s.bind(name)
	}
	end := s.fn.slots
	return func(f *frame) control {
		base := len(s.values)
		all(f)
		got := copy(f.at[first:end], s.values[base:])
		clear(f.at[first+got : end])
		s.values = s.values[:base]
		return goesOn
	}
}

func (s *scope) assign(st *ast.AssignStmt) statement {
	targets := make([]func(f *frame, v value), len(st.Lhs))
	for i, to := range st.Lhs {
		switch to := to.(type) {
		case *ast.IdentExpr:
			b, depth := s.find(to.Value)
			if b == nil || b.fn != nil {
				panic("a script assigns to " + to.Value)
			}
			slot := b.slot
			targets[i] = func(f *frame, v value) { f.outer(depth).at[slot] = v }
		case *ast.AttrGetExpr:
			of, key := s.expression(to.Object), s.expression(to.Key)
			targets[i] = func(f *frame, v value) { of(f).table().set(key(f), v) }
		}
	}
	if len(targets) == 1 && len(st.Rhs) == 1 {
		to, e := targets[0], s.expression(st.Rhs[0])
		return func(f *frame) control { to(f, e(f)); return goesOn }
	}
	all := s.list(st.Rhs)
	return func(f *frame) control {
		base := len(s.values)
		all(f)
		for i, to := range targets {
			var v value
			if base+i < len(s.values) {
				v = s.values[base+i]
			}
			to(f, v)
		}
		s.values = s.values[:base]
		return goesOn
	}
}

// list compiles expressions of which the last may have any number of values.
func (s *scope) list(all []ast.Expr) list {
	if len(all) == 0 {
		return func(*frame) {}
	}
	last := s.many(all[len(all)-1])
	singles := make([]expression, 0, len(all))
	for i, e := range all {
		if i < len(all)-1 || last == nil {
			singles = append(singles, s.expression(e))
		}
	}
	return func(f *frame) {
		for _, e := range singles {
			v := e(f)
			s.values = append(s.values, v)
		}
		if last != nil {
			last(f)
		}
	}
}

// constant is an expression that is always the same.
func constant(v value) expression { return func(*frame) value { return v } }

func number(n float64) value { return value{kind: isNumber, n: n} }

func word(s string) value { return value{kind: isText, s: s} }

func truth(b bool) value {
	if b {
		return value{kind: isTrue}
	}
	return value{kind: isFalse}
}
