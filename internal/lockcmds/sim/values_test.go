package sim

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/yuin/gopher-lua/ast"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// value is a value of Lua.
type value struct {
	kind kind
	n    float64
	s    string
	t    *luaTable
}

type kind byte

const (
	isNil kind = iota
	isFalse
	isTrue
	isNumber
	isText
	isTable
)

func (v value) holds() bool { return v.kind > isFalse }

func (v value) table() *luaTable {
	if v.kind != isTable {
		raise("attempt to index a %s value", v.kind)
	}
	return v.t
}

func (v value) number() float64 {
	if v.kind == isNumber {
		return v.n
	}
	n, ok := v.toNumber()
	if !ok {
		raise("attempt to perform arithmetic on a %s value", v.kind)
	}
	return n
}

// toNumber is tonumber.
func (v value) toNumber() (float64, bool) {
	if v.kind != isText {
		return v.n, v.kind == isNumber
	}
	if n, ok := digits(v.s); ok {
		return n, true
	}
	s := strings.TrimSpace(v.s)
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		return n, true
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(s), "0x"), 16, 64)
	return float64(n), err == nil && len(s) > 2 && strings.EqualFold(s[:2], "0x")
}

// digits reads a number that is nothing but digits.
func digits(s string) (float64, bool) {
	if s == "" || len(s) > 18 {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return float64(n), true
}

// text is the text that .. makes of a value.
func (v value) text() string {
	s, ok := v.printed(14, 1e14)
	if !ok {
		raise("attempt to concatenate a %s value", v.kind)
	}
	return s
}

// argument is the value as an argument of a command: Redis prints more digits.
func (v value) argument() string {
	s, ok := v.printed(17, 1e17)
	if !ok {
		raise("Lua redis lib command arguments must be strings or integers")
	}
	return s
}

// printed is a text as it is, or a number with so many digits at most; limit has one more.
func (v value) printed(digits int, limit float64) (string, bool) {
	switch v.kind {
	case isText:
		return v.s, true
	case isNumber:
		if i := int64(v.n); float64(i) == v.n && -limit < v.n && v.n < limit {
			return strconv.FormatInt(i, 10), true
		}
		return strconv.FormatFloat(v.n, 'g', digits, 64), true
	default:
		return "", false
	}
}

func (v value) equals(o value) bool {
	if v.kind != o.kind {
		return false
	}
	switch v.kind {
	case isNumber:
		return v.n == o.n
	case isText:
		return v.s == o.s
	case isTable:
		return v.t == o.t
	default:
		return true
	}
}

func (v value) less(o value) bool {
	switch {
	case v.kind == isNumber && o.kind == isNumber:
		return v.n < o.n
	case v.kind == isText && o.kind == isText:
		return v.s < o.s
	}
	raise("attempt to compare %s with %s", v.kind, o.kind)
	return false
}

func (v value) atMost(o value) bool {
	switch {
	case v.kind == isNumber && o.kind == isNumber:
		return v.n <= o.n
	case v.kind == isText && o.kind == isText:
		return v.s <= o.s
	}
	raise("attempt to compare %s with %s", v.kind, o.kind)
	return false
}

func (k kind) String() string {
	return [...]string{"nil", "boolean", "boolean", "number", "string", "table"}[k]
}

// luaTable has items 1 to n, and fields.
type luaTable struct {
	list   []value
	names  []string
	fields []value
}

func (m *machine) newTable() *luaTable {
	if m.made == len(m.tables) {
		m.tables = append(m.tables, &luaTable{})
	}
	t := m.tables[m.made]
	m.made++
	t.list, t.names, t.fields = t.list[:0], t.names[:0], t.fields[:0]
	return t
}

func (t *luaTable) setTexts(all []string) {
	t.list = t.list[:0]
	for _, s := range all {
		t.list = append(t.list, word(s))
	}
}

// setItems takes items; nils at the end are none.
func (t *luaTable) setItems(all []value) {
	t.list = append(t.list, all...)
	t.trim()
}

func (t *luaTable) trim() {
	for n := len(t.list); n > 0 && t.list[n-1].kind == isNil; n-- {
		t.list = t.list[:n-1]
	}
}

func (t *luaTable) item(i int) value {
	if i < 1 || i > len(t.list) {
		return value{}
	}
	return t.list[i-1]
}

func (t *luaTable) field(name string) value {
	for i, n := range t.names {
		if n == name {
			return t.fields[i]
		}
	}
	return value{}
}

func (t *luaTable) get(key value) value {
	switch key.kind {
	case isNumber:
		if key.n == math.Trunc(key.n) && math.Abs(key.n) < 1e9 {
			return t.item(int(key.n))
		}
		return value{}
	case isText:
		return t.field(key.s)
	default:
		return value{}
	}
}

func (t *luaTable) set(key, v value) {
	switch key.kind {
	case isText:
		for i, n := range t.names {
			if n == key.s {
				t.fields[i] = v
				return
			}
		}
		if v.kind != isNil {
			t.names, t.fields = append(t.names, key.s), append(t.fields, v)
		}
		return
	case isNumber:
		switch i := int(key.n); {
		case float64(i) != key.n || i < 1 || i > len(t.list)+1:
		case i <= len(t.list):
			t.list[i-1] = v
			t.trim()
			return
		case v.kind == isNil:
			return
		default:
			t.list = append(t.list, v)
			return
		}
	default:
	}
	panic(fmt.Sprintf("a script sets a table's item %v", key))
}

// pair is the i-th pair in the order of pairs, or of ipairs.
func (t *luaTable) pair(i int, fields bool) (key, v value, more bool) {
	switch {
	case i < len(t.list):
		v = t.list[i]
		return number(float64(i + 1)), v, fields || v.kind != isNil
	case fields && i-len(t.list) < len(t.names):
		i -= len(t.list)
		return word(t.names[i]), t.fields[i], true
	}
	return key, v, false
}

// simple are the functions of Lua that the scripts use, of one value.
var simple = map[string]func(v value) value{
	"tonumber": func(v value) value {
		if n, ok := v.toNumber(); ok {
			return number(n)
		}
		return value{}
	},
	"type":       func(v value) value { return word(v.kind.String()) },
	"math.floor": func(v value) value { return number(math.Floor(v.number())) },
}

// builtins are those of several. They have one value, and do not keep what they are given.
var builtins = map[string]func(a []value) value{
	"math.max": func(a []value) value {
		most := a[0].number()
		for _, v := range a[1:] {
			most = max(most, v.number())
		}
		return number(most)
	},
	"math.min": func(a []value) value {
		least := a[0].number()
		for _, v := range a[1:] {
			least = min(least, v.number())
		}
		return number(least)
	},
	"string.sub": func(a []value) value {
		s, from, to := a[0].text(), int(a[1].number()), -1
		if len(a) > 2 {
			to = int(a[2].number())
		}
		if from < 0 {
			from = len(s) + from + 1
		}
		if to < 0 {
			to = len(s) + to + 1
		}
		from, to = max(from, 1), min(to, len(s))
		if from > to {
			return word("")
		}
		return word(s[from-1 : to])
	},
	"string.format": func(a []value) value { return word(strconv.FormatFloat(a[1].number(), 'f', 0, 64)) },
}

// valueOf is what a script gets of a reply.
func (m *machine) valueOf(v reply) value {
	switch v.kind {
	case integer:
		return number(float64(v.n))
	case bulk:
		return word(v.text)
	case array:
		t := m.newTable()
		for _, e := range v.list {
			t.list = append(t.list, m.valueOf(e))
		}
		return value{kind: isTable, t: t}
	case status:
		return m.wordIn("ok", v.text)
	case failure:
		return m.wordIn("err", v.text)
	default:
		return truth(false)
	}
}

// wordIn is a table with one field.
func (m *machine) wordIn(field, text string) value {
	t := m.newTable()
	t.set(word(field), word(text))
	return value{kind: isTable, t: t}
}

// reply is what Redis makes of what a script returns.
func (v value) reply() resp.Value {
	switch v.kind {
	case isNumber:
		return resp.Value{Kind: resp.Integer, Int: int64(v.n)}
	case isText:
		return resp.Value{Kind: resp.Bulk, Str: []byte(v.s)}
	case isTrue:
		return resp.Value{Kind: resp.Integer, Int: 1}
	case isTable:
		if e := v.t.field("err"); e.kind != isNil {
			return resp.Value{Kind: resp.SimpleError, Str: []byte(e.text())}
		}
		if ok := v.t.field("ok"); ok.kind != isNil {
			return resp.Value{Kind: resp.SimpleString, Str: []byte(ok.text())}
		}
		out := resp.Value{Kind: resp.Array}
		for _, e := range v.t.list {
			if e.kind == isNil {
				break
			}
			if out.Elems == nil {
				out.Elems = make([]resp.Value, 0, len(v.t.list))
			}
			out.Elems = append(out.Elems, e.reply())
		}
		return out
	default:
	}
	return resp.Value{Kind: resp.Null, Null: true}
}

// pattern is a pattern of Lua that consists of single characters and classes of them.
type pattern struct {
	items    []item
	captures int
	end      bool // it ends with $
}

// item is one step of a pattern.
type item struct {
	capture byte // ( or ): a capture begins or ends here, and nothing is read
	fits    func(c byte) bool
	repeats bool // +
}

// patternOf compiles a pattern that begins with ^.
func patternOf(e ast.Expr) *pattern {
	s, ok := e.(*ast.StringExpr)
	if !ok || !strings.HasPrefix(s.Value, "^") {
		panic("a script uses a pattern that does not begin with ^")
	}
	p := &pattern{}
	for rest := s.Value[1:]; rest != ""; {
		var one item
		switch c := rest[0]; {
		case c == '(', c == ')':
			if c == '(' {
				p.captures++
			}
			p.items, rest = append(p.items, item{capture: c}), rest[1:]
			continue
		case rest == "$":
			p.end, rest = true, ""
			continue
		case strings.HasPrefix(rest, "%d"):
			one.fits, rest = func(c byte) bool { return c >= '0' && c <= '9' }, rest[2:]
		case strings.HasPrefix(rest, "[^"):
			set, behind, _ := strings.Cut(rest[2:], "]")
			if strings.ContainsAny(set, "%-") {
				panic("a script uses the pattern " + s.Value)
			}
			one.fits, rest = func(c byte) bool { return strings.IndexByte(set, c) < 0 }, behind
		case strings.IndexByte("%.[]*-?+", c) >= 0:
			panic("a script uses the pattern " + s.Value)
		default:
			one.fits, rest = func(o byte) bool { return o == c }, rest[1:]
		}
		if strings.HasPrefix(rest, "+") {
			one.repeats, rest = true, rest[1:]
		}
		p.items = append(p.items, one)
	}
	return p
}

// match appends what string.match returns.
func (p *pattern) match(s string, to []value) []value {
	var ends [2 * 8]int
	end, ok := p.try(s, 0, p.items, &ends, 0)
	switch {
	case !ok:
		return append(to, value{})
	case p.captures == 0:
		return append(to, word(s[:end]))
	}
	for i := range p.captures {
		to = append(to, word(s[ends[2*i]:ends[2*i+1]]))
	}
	return to
}

// try matches the rest of a pattern from a place on. n is how many captures have begun.
func (p *pattern) try(s string, at int, items []item, ends *[16]int, n int) (end int, ok bool) {
	for i, one := range items {
		switch {
		case one.capture == '(':
			ends[2*n] = at
			n++
		case one.capture == ')': // captures do not nest
			ends[2*n-1] = at
		case !one.repeats:
			if at == len(s) || !one.fits(s[at]) {
				return 0, false
			}
			at++
		default:
			most := at
			for most < len(s) && one.fits(s[most]) {
				most++
			}
			for ; most > at; most-- {
				if end, ok = p.try(s, most, items[i+1:], ends, n); ok {
					return end, true
				}
			}
			return 0, false
		}
	}
	return at, !p.end || at == len(s)
}
