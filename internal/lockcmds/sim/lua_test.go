package sim

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// bothRunners runs each script twice: compiled on the server, and in an interpreter of Lua on a copy of it.
type bothRunners struct {
	t *testing.T
	*machine
	*interpreter
	ran map[string]int // by name
}

// Scripts that are compiled do in all calls of random histories what an interpreter of Lua does.
func TestCompiledScriptsRunAsLua(t *testing.T) {
	for _, s := range script.All() {
		newMachine().compile(s.Text())
	}
	before := scripts
	defer func() { scripts = before }()
	both := &bothRunners{t, newMachine(), newInterpreter(), map[string]int{}}
	scripts = both
	for seed := range min(300, uint64(fixed)) {
		if newPlan(seed + 1).play(false); t.Failed() {
			t.Fatalf("seed %d", seed+1)
		}
	}
	t.Logf("calls: %v", both.ran)
	for _, name := range []string{"acquire", "crowd", "fair", "release", "handover", "renew", "leave", "extend", "drop", "prove", "head", "force"} {
		if both.ran[name] == 0 {
			t.Errorf("%s was not run", name)
		}
	}
}

func (b *bothRunners) run(server *redis, s redislink.Script, keys, args []string) resp.Value {
	type message struct {
		channel   string
		receivers int64
	}
	var told []message
	twin := &redis{micros: server.micros, keys: store{}, logs: server.logs, dirty: slices.Clone(server.dirty), flushed: server.flushed}
	for _, one := range server.keys {
		own := one.clone()
		own.shared = one.shared
		twin.keys.put(one.key, own)
	}
	publish := server.publish
	server.publish = func(channel, text string) int64 {
		n := publish(channel, text)
		told = append(told, message{channel, n})
		return n
	}
	name := s.(interface{ Name() string }).Name()
	b.ran[name]++
	got := b.machine.run(server, s, keys, args)
	server.publish = publish
	twin.publish = func(channel, _ string) (n int64) {
		if len(told) == 0 || told[0].channel != channel {
			b.t.Errorf("%s %q %q: a message on %s, but compiled %v", name, keys, args, channel, told)
			return 0
		}
		n, told = told[0].receivers, told[1:]
		return n
	}
	want := b.interpreter.run(twin, s, keys, args)
	if show(got) != show(want) || len(told) > 0 || !slices.Equal(server.dirty, twin.dirty) || !reflect.DeepEqual(server.keys, twin.keys) {
		b.t.Errorf("%s %q %q: compiled %s, as Lua %s", name, keys, args, show(got), show(want))
	}
	return got
}

// interpreter runs the scripts as they are. It keeps nothing between two calls.
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
	v := toLua(l, out)
	if out.kind == failure && raise {
		l.Error(v, 1)
	}
	l.Push(v)
	return 1
}

func toLua(l *lua.LState, r reply) lua.LValue {
	t := l.NewTable()
	switch r.kind {
	case integer:
		return lua.LNumber(r.n)
	case bulk:
		return lua.LString(r.text)
	case status:
		t.RawSetString("ok", lua.LString(r.text))
	case failure:
		t.RawSetString("err", lua.LString(r.text))
	case array:
		for i, e := range r.list {
			t.RawSetInt(i+1, toLua(l, e))
		}
	default:
		return lua.LFalse
	}
	return t
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
