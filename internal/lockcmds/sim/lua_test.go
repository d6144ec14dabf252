package sim

import (
	"errors"
	"fmt"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// The scripts run as they are: compiled once, in one interpreter, which all histories share. It keeps nothing between two calls.

type interpreter struct {
	state    *lua.LState
	compiled map[string]*lua.FunctionProto // by SHA
	server   *redis                        // that the script in progress talks to
}

func newInterpreter() *interpreter {
	in := &interpreter{state: lua.NewState(lua.Options{RegistrySize: 1 << 12}), compiled: map[string]*lua.FunctionProto{}}
	table := in.state.NewTable()
	table.RawSetString("call", in.state.NewFunction(func(l *lua.LState) int { return in.call(l, true) }))
	table.RawSetString("pcall", in.state.NewFunction(func(l *lua.LState) int { return in.call(l, false) }))
	in.state.SetGlobal("redis", table)
	return in
}

// run executes a script on a server.
func (in *interpreter) run(server *redis, s redislink.Script, keys, args []string) resp.Value {
	proto := in.compiled[s.SHA()]
	if proto == nil {
		chunk, err := parse.Parse(strings.NewReader(s.Text()), "script")
		if err != nil {
			panic(err)
		}
		if proto, err = lua.Compile(chunk, "script"); err != nil {
			panic(err)
		}
		in.compiled[s.SHA()] = proto
	}
	in.server = server
	l := in.state
	l.SetGlobal("KEYS", texts(l, keys))
	l.SetGlobal("ARGV", texts(l, args))
	l.Push(l.NewFunctionFromProto(proto))
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
	out := in.server.do(strings.ToUpper(l.CheckString(1)), args)
	if err, failed := out.(error); failed {
		t := l.NewTable()
		t.RawSetString("err", lua.LString(err.Error()))
		if raise {
			l.Error(t, 1)
		}
		l.Push(t)
		return 1
	}
	l.Push(toLua(l, out))
	return 1
}

func toLua(l *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case int64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case status:
		t := l.NewTable()
		t.RawSetString("ok", lua.LString(v))
		return t
	case []any:
		t := l.CreateTable(len(v), 0)
		for i, e := range v {
			t.RawSetInt(i+1, toLua(l, e))
		}
		return t
	}
	return lua.LFalse
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
