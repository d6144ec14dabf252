package sim

import (
	"crypto/sha1"
	"errors"
	"fmt"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// interpreter runs the scripts as they are. It keeps nothing between two calls.
type interpreter struct {
	state    *lua.LState
	compiled map[string]*lua.LFunction // by SHA
	server   *redis                    // that the script in progress talks to
}

func newInterpreter() *interpreter {
	in := &interpreter{state: lua.NewState(lua.Options{RegistrySize: 1 << 12}), compiled: map[string]*lua.LFunction{}}
	table := in.state.NewTable()
	table.RawSetString("call", in.state.NewFunction(func(l *lua.LState) int { return in.call(l, true) }))
	table.RawSetString("sha1hex", in.state.NewFunction(func(l *lua.LState) int {
		l.Push(lua.LString(fmt.Sprintf("%x", sha1.Sum([]byte(l.CheckString(1))))))
		return 1
	}))
	table.RawSetString("error_reply", in.state.NewFunction(func(l *lua.LState) int {
		l.Push(toLua(l, reply{kind: failure, text: l.CheckString(1)}))
		return 1
	}))
	table.RawSetString("pcall", in.state.NewFunction(func(l *lua.LState) int { return in.call(l, false) }))
	in.state.SetGlobal("redis", table)
	return in
}

// run executes a script on a server.
func (in *interpreter) run(server *redis, s redislink.Script, keys, args []string) resp.Value {
	l := in.state
	compiled := in.compiled[s.SHA()]
	if compiled == nil {
		var err error
		if compiled, err = l.Load(strings.NewReader(s.Text()), "script"); err != nil {
			panic(err)
		}
		in.compiled[s.SHA()] = compiled
	}
	in.server = server
	l.SetGlobal("KEYS", texts(l, keys))
	l.SetGlobal("ARGV", texts(l, args))
	l.Push(compiled)
	if err := l.PCall(0, 1, nil); err != nil {
		l.SetTop(0)
		var failed *lua.ApiError
		if errors.As(err, &failed) && failed.Object.Type() == lua.LTTable {
			return valueOf(failed.Object)
		}
		return resp.Value{Kind: resp.SimpleError, Str: []byte("ERR " + err.Error())}
	}
	v := valueOf(l.Get(-1))
	l.SetTop(0)
	return v
}

func texts(l *lua.LState, list []string) *lua.LTable {
	t := l.CreateTable(len(list), 0)
	for _, s := range list {
		t.Append(lua.LString(s))
	}
	return t
}

// call is redis.call and redis.pcall.
func (in *interpreter) call(l *lua.LState, raise bool) int {
	n := l.GetTop()
	args := make([]string, n-1)
	for i := range args {
		switch v := l.Get(i + 2).(type) {
		case lua.LString:
			args[i] = string(v)
		case lua.LNumber:
			args[i] = fmt.Sprintf("%.17g", float64(v)) // as Redis does
		default:
			l.RaiseError("Lua redis lib command arguments must be strings or integers")
		}
	}
	name, out := strings.ToUpper(l.CheckString(1)), reply{kind: failure, text: "ERR Script attempted to access a non local key in a cluster node"}
	if !in.server.elsewhere(name, args) {
		out = in.server.do(name, args)
	}
	v := toLua(l, out)
	if out.kind == failure && raise {
		l.Error(v, 1)
	}
	l.Push(v)
	return 1
}

func toLua(l *lua.LState, r reply) lua.LValue {
	switch r.kind {
	case integer:
		return lua.LNumber(r.n)
	case bulk:
		return lua.LString(r.text)
	case status, failure:
		t := l.CreateTable(0, 1)
		field := "ok"
		if r.kind == failure {
			field = "err"
		}
		t.RawSetString(field, lua.LString(r.text))
		return t
	case array:
		t := l.CreateTable(len(r.list), 0)
		for _, e := range r.list {
			t.Append(toLua(l, e))
		}
		return t
	default:
		return lua.LFalse
	}
}

// valueOf is what Redis makes of what a script returns.
func valueOf(v lua.LValue) resp.Value {
	switch v := v.(type) {
	case lua.LNumber:
		return resp.Value{Kind: resp.Integer, Int: int64(v)}
	case lua.LString:
		return resp.Value{Kind: resp.Bulk, Str: []byte(v)}
	case lua.LBool:
		if v {
			return resp.Value{Kind: resp.Integer, Int: 1}
		}
	case *lua.LTable:
		if text := v.RawGetString("err"); text != lua.LNil {
			return resp.Value{Kind: resp.SimpleError, Str: []byte(text.String())}
		}
		if text := v.RawGetString("ok"); text != lua.LNil {
			return resp.Value{Kind: resp.SimpleString, Str: []byte(text.String())}
		}
		out := resp.Value{Kind: resp.Array}
		for i := 1; v.RawGetInt(i) != lua.LNil; i++ {
			out.Elems = append(out.Elems, valueOf(v.RawGetInt(i)))
		}
		return out
	}
	return resp.Value{Kind: resp.Null, Null: true}
}
