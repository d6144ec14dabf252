package sim

import (
	"fmt"
	"math"
	"strings"

	"github.com/yuin/gopher-lua/ast"
)

// expression compiles an expression to its first value.
func (s *scope) expression(e ast.Expr) expression {
	switch e := e.(type) {
	case *ast.NilExpr:
		return constant(value{})
	case *ast.TrueExpr:
		return constant(truth(true))
	case *ast.FalseExpr:
		return constant(truth(false))
	case *ast.StringExpr:
		return constant(word(e.Value))
	case *ast.NumberExpr:
		n, ok := word(e.Value).toNumber()
		if !ok {
			panic("a script has the number " + e.Value)
		}
		return constant(number(n))
	case *ast.IdentExpr:
		return s.variable(e.Value)
	case *ast.AttrGetExpr:
		return s.index(e)
	case *ast.TableExpr:
		return s.tableOf(e)
	case *ast.FuncCallExpr:
		return s.call(e)
	case *ast.LogicalOpExpr:
		a, b := s.expression(e.Lhs), s.expression(e.Rhs)
		or := e.Operator == "or"
		return func(f *frame) value {
			v := a(f)
			if v.holds() == or {
				return v
			}
			return b(f)
		}
	case *ast.RelationalOpExpr, *ast.UnaryNotOpExpr:
		is := s.condition(e)
		return func(f *frame) value { return truth(is(f)) }
	case *ast.StringConcatOpExpr:
		a, b := s.expression(e.Lhs), s.expression(e.Rhs)
		return func(f *frame) value {
			x := a(f)
			y := b(f)
			return word(x.text() + y.text())
		}
	case *ast.ArithmeticOpExpr:
		return s.arithmetic(e)
	case *ast.UnaryMinusOpExpr:
		a := s.expression(e.Expr)
		return func(f *frame) value { return number(-a(f).number()) }
	case *ast.UnaryLenOpExpr:
		a := s.expression(e.Expr)
		return func(f *frame) value {
			v := a(f)
			if v.kind == isText {
				return number(float64(len(v.s)))
			}
			return number(float64(len(v.table().list)))
		}
	}
	panic(fmt.Sprintf("a script uses %T", e))
}

func (s *scope) variable(name string) expression {
	b, depth := s.find(name)
	if b == nil || b.fn != nil {
		panic("a script uses " + name + " as a value")
	}
	switch slot := b.slot; depth {
	case 0:
		return func(f *frame) value { return f.at[slot] }
	case 1:
		return func(f *frame) value { return f.up.at[slot] }
	default:
		return func(f *frame) value { return f.outer(depth).at[slot] }
	}
}

func (s *scope) index(e *ast.AttrGetExpr) expression {
	if t, i := s.given(e); t != nil {
		return func(*frame) value { return t.item(i) }
	}
	of := s.expression(e.Object)
	switch key := e.Key.(type) {
	case *ast.StringExpr:
		return func(f *frame) value { return of(f).table().field(key.Value) }
	case *ast.NumberExpr:
		n, _ := word(key.Value).toNumber()
		i := int(n)
		return func(f *frame) value { return of(f).table().item(i) }
	}
	key := s.expression(e.Key)
	return func(f *frame) value {
		t := of(f).table()
		return t.get(key(f))
	}
}

// given is the table and the place of a key or an argument of the script that is named by a number; nil: it is something else.
func (s *scope) given(e ast.Expr) (t *luaTable, place int) {
	at, ok := e.(*ast.AttrGetExpr)
	if !ok {
		return nil, 0
	}
	n, ok := at.Key.(*ast.NumberExpr)
	if !ok {
		return nil, 0
	}
	i, _ := word(n.Value).toNumber()
	switch nameOf(at.Object) {
	case "KEYS":
		return s.keys, int(i)
	case "ARGV":
		return s.argv, int(i)
	}
	return nil, 0
}

func (s *scope) tableOf(e *ast.TableExpr) expression {
	var items []ast.Expr
	var fields []func(f *frame, t *luaTable)
	for _, one := range e.Fields {
		if one.Key == nil {
			items = append(items, one.Value)
			continue
		}
		key, v := s.expression(one.Key), s.expression(one.Value)
		fields = append(fields, func(f *frame, t *luaTable) { t.set(key(f), v(f)) })
	}
	all := s.list(items)
	return func(f *frame) value {
		base := len(s.values)
		all(f)
		t := s.newTable()
		t.setItems(s.values[base:])
		s.values = s.values[:base]
		for _, set := range fields {
			set(f, t)
		}
		return value{kind: isTable, t: t}
	}
}

func (s *scope) arithmetic(e *ast.ArithmeticOpExpr) expression {
	a, b := s.expression(e.Lhs), s.expression(e.Rhs)
	switch e.Operator {
	case "+":
		return func(f *frame) value { x := a(f).number(); return number(x + b(f).number()) }
	case "-":
		return func(f *frame) value { x := a(f).number(); return number(x - b(f).number()) }
	case "*":
		return func(f *frame) value { x := a(f).number(); return number(x * b(f).number()) }
	case "/":
		return func(f *frame) value { x := a(f).number(); return number(x / b(f).number()) }
	case "%":
		return func(f *frame) value {
			x := a(f).number()
			y := b(f).number()
			return number(x - math.Floor(x/y)*y)
		}
	}
	panic("a script computes with " + e.Operator)
}

// condition compiles an expression of which only the truth is asked for.
func (s *scope) condition(e ast.Expr) condition {
	switch e := e.(type) {
	case *ast.LogicalOpExpr:
		a, b := s.condition(e.Lhs), s.condition(e.Rhs)
		if e.Operator == "or" {
			return func(f *frame) bool { return a(f) || b(f) }
		}
		return func(f *frame) bool { return a(f) && b(f) }
	case *ast.UnaryNotOpExpr:
		a := s.condition(e.Expr)
		return func(f *frame) bool { return !a(f) }
	case *ast.RelationalOpExpr:
		a, b := s.expression(e.Lhs), s.expression(e.Rhs)
		if e.Operator == "==" || e.Operator == "~=" {
			equal := e.Operator == "=="
			switch c := e.Rhs.(type) {
			case *ast.StringExpr:
				return func(f *frame) bool { x := a(f); return (x.kind == isText && x.s == c.Value) == equal }
			case *ast.NumberExpr:
				n := b(nil).n
				return func(f *frame) bool { x := a(f); return (x.kind == isNumber && x.n == n) == equal }
			}
		}
		switch e.Operator {
		case "==":
			return func(f *frame) bool { x := a(f); return x.equals(b(f)) }
		case "~=":
			return func(f *frame) bool { x := a(f); return !x.equals(b(f)) }
		case "<":
			return func(f *frame) bool { x := a(f); return x.less(b(f)) }
		case ">":
			return func(f *frame) bool { x := a(f); return b(f).less(x) }
		case "<=":
			return func(f *frame) bool { x := a(f); return x.atMost(b(f)) }
		case ">=":
			return func(f *frame) bool { x := a(f); return b(f).atMost(x) }
		}
		panic("a script compares with " + e.Operator)
	}
	v := s.expression(e)
	return func(f *frame) bool { return v(f).holds() }
}

// many compiles an expression that may have any number of values; nil: it has one.
func (s *scope) many(e ast.Expr) list {
	c, ok := e.(*ast.FuncCallExpr)
	if !ok || c.AdjustRet {
		return nil
	}
	if name, ok := c.Func.(*ast.IdentExpr); ok {
		if b, _ := s.find(name.Value); b != nil {
			enter := s.entry(c, name.Value)
			return func(f *frame) {
				fn, called := enter(f)
				s.values = append(s.values, called.results...)
				fn.unused = append(fn.unused, called)
			}
		}
	}
	args := make([]expression, len(c.Args))
	for i, a := range c.Args {
		args[i] = s.expression(a)
	}
	switch nameOf(c.Func) {
	case "string.match":
		find := patternOf(c.Args[1])
		return func(f *frame) { s.values = find.match(args[0](f).text(), s.values) }
	case "unpack":
		return func(f *frame) {
			t := args[0](f).table()
			from, to := 1, len(t.list)
			if len(args) > 1 {
				from = int(args[1](f).number())
			}
			if len(args) > 2 {
				to = int(args[2](f).number())
			}
			for i := from; i <= to; i++ {
				s.values = append(s.values, t.item(i))
			}
		}
	}
	return nil
}

// entry compiles a call of a local function. The caller gives its frame back when it has read the results.
func (s *scope) entry(c *ast.FuncCallExpr, name string) func(f *frame) (*function, *frame) {
	b, depth := s.find(name)
	fn := b.fn
	if fn == nil {
		panic("a script calls the variable " + name)
	}
	args := make([]expression, 0, len(c.Args))
	for i, a := range c.Args {
		if i == len(c.Args)-1 && s.many(a) != nil {
			panic("a script passes all values of a call to " + name)
		}
		args = append(args, s.expression(a))
	}
	if len(args) > fn.params {
		panic("a script passes too many values to " + name)
	}
	return func(f *frame) (*function, *frame) {
		called := fn.enter(f.outer(depth))
		for i, a := range args {
			called.at[i] = a(f)
		}
		clear(called.at[len(args):fn.params])
		execute(called, fn.body)
		return fn, called
	}
}

// nameOf is the name of a function that is not the script's.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.IdentExpr:
		return e.Value
	case *ast.AttrGetExpr:
		if key, ok := e.Key.(*ast.StringExpr); ok {
			return nameOf(e.Object) + "." + key.Value
		}
	}
	return ""
}

// call compiles a call to its first value.
func (s *scope) call(c *ast.FuncCallExpr) expression {
	if name, ok := c.Func.(*ast.IdentExpr); ok {
		if b, _ := s.find(name.Value); b != nil {
			enter := s.entry(c, name.Value)
			return func(f *frame) (v value) {
				fn, called := enter(f)
				if len(called.results) > 0 {
					v = called.results[0]
				}
				fn.unused = append(fn.unused, called)
				return v
			}
		}
	}
	name := nameOf(c.Func)
	switch name {
	case "redis.call", "redis.pcall":
		return s.redisCall(c, name == "redis.call")
	case "string.match", "unpack":
		all := s.many(&ast.FuncCallExpr{Func: c.Func, Args: c.Args})
		return func(f *frame) (v value) {
			base := len(s.values)
			all(f)
			if len(s.values) > base {
				v = s.values[base]
			}
			s.values = s.values[:base]
			return v
		}
	case "string.format":
		if e, ok := c.Args[0].(*ast.StringExpr); !ok || e.Value != "%.0f" {
			panic("a script uses another format than %.0f")
		}
	}
	if of, ok := simple[name]; ok && len(c.Args) == 1 {
		a := s.expression(c.Args[0])
		return func(f *frame) value { return of(a(f)) }
	}
	of, ok := builtins[name]
	if !ok {
		panic("a script calls " + name)
	}
	all := s.list(c.Args)
	return func(f *frame) value {
		base := len(s.values)
		all(f)
		v := of(s.values[base:])
		s.values = s.values[:base]
		return v
	}
}

// redisCall compiles redis.call, which raises the errors of commands, and redis.pcall.
func (s *scope) redisCall(c *ast.FuncCallExpr, raises bool) expression {
	args := make([]func(f *frame) string, 0, len(c.Args))
	var rest list
	for i, a := range c.Args[1:] {
		if i == len(c.Args)-2 {
			if rest = s.many(a); rest != nil {
				break
			}
		}
		args = append(args, s.argument(a))
	}
	given := func(f *frame) []string {
		first := len(s.args)
		for _, a := range args {
			text := a(f)
			s.args = append(s.args, text)
		}
		if rest != nil {
			base := len(s.values)
			rest(f)
			for _, v := range s.values[base:] {
				s.args = append(s.args, v.argument())
			}
			s.values = s.values[:base]
		}
		all := s.args[first:]
		s.args = s.args[:first]
		return all
	}
	if name, ok := c.Args[0].(*ast.StringExpr); ok {
		return s.command(strings.ToUpper(name.Value), given, raises)
	}
	name := s.argument(c.Args[0])
	return func(f *frame) value {
		name := strings.ToUpper(name(f))
		return s.result(s.server.do(name, given(f)), raises)
	}
}

// command compiles a call of a command whose name is known.
func (s *scope) command(name string, given func(f *frame) []string, raises bool) expression {
	switch {
	case name == "HMGET": // the most frequent one: without a reply in between
		return func(f *frame) value {
			args := given(f)
			e, err := s.server.of('h', args[0])
			if err != nil {
				return s.result(failed(err), raises)
			}
			t := s.newTable()
			for _, field := range args[1:] {
				v := truth(false)
				if text, ok := e.value(field); ok {
					v = word(text)
				}
				t.list = append(t.list, v)
			}
			return value{kind: isTable, t: t}
		}
	case writes[name]:
		return func(f *frame) value {
			args := given(f)
			s.server.write(name, args)
			return s.result(s.server.execute(name, args), raises)
		}
	default:
		return func(f *frame) value { return s.result(s.server.execute(name, given(f)), raises) }
	}
}

// result is what a script gets of a reply. raises: it does not get errors.
func (m *machine) result(r reply, raises bool) value {
	v := m.valueOf(r)
	if r.kind == failure && raises {
		panic(raised{v})
	}
	return v
}

// argument compiles an argument of a command.
func (s *scope) argument(e ast.Expr) func(f *frame) string {
	if text, ok := e.(*ast.StringExpr); ok {
		return func(*frame) string { return text.Value }
	}
	if t, i := s.given(e); t != nil {
		return func(*frame) string { return t.item(i).argument() }
	}
	v := s.expression(e)
	return func(f *frame) string { return v(f).argument() }
}
