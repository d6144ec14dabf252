package sim

import (
	"fmt"
	"io"
	"runtime/debug"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/lockproxy/lockproxy/internal/lockcmds"
)

// crashes is the log of all engines. An engine that panics ends its process by an entry of the level Fatal: here it
// ends the history.
var crashes = zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{}), zapcore.AddSync(io.Discard), zap.FatalLevel),
	zap.WithFatalHook(crash{}))

// crash is what an engine has panicked with. It passes the guards of the engine and the coroutines on its way to
// plan.play.
type crash struct{ what, stack string }

// OnWrite implements zapcore.CheckWriteHook.
func (crash) OnWrite(_ *zapcore.CheckedEntry, fields []zapcore.Field) {
	all := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		if c, ok := f.Interface.(crash); ok { // a guard further out
			panic(c)
		}
		f.AddTo(all)
	}
	panic(crash{fmt.Sprint(all.Fields["panic"]), fmt.Sprintf("%s", all.Fields["stack"])})
}

// crashed is deferred by a history: one in which anything panics has broken a rule. Its tasks are left as they are,
// because they may wait for a mutex that is locked for ever.
func (w *world) crashed() {
	r := recover()
	if r == nil {
		return
	}
	if w.broken != "" { // it panics because of that
		return
	}
	c, ok := r.(crash)
	if !ok {
		c = crash{fmt.Sprint(r), string(debug.Stack())}
	}
	w.over = false
	w.fail("no panic", "%s", c.what)
	w.note("%s", c.stack)
}

// A history in which an engine panics ends with a broken rule, not with the process.
func TestAPanicOfAnEngineBreaksARule(t *testing.T) {
	w := &world{keep: true}
	func() {
		defer w.crashed()
		w.start(func() {
			outer, inner := lockcmds.FailStop{Log: crashes}, lockcmds.FailStop{Log: crashes}
			defer outer.Guard()
			defer inner.Guard()
			panic("the list has no head")
		})
	}()
	if w.broken != "no panic: the list has no head" || len(w.lines) != 2 {
		t.Errorf("%q\n%q", w.broken, w.lines)
	}
}
