package main

import (
	"io"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/lockproxy/lockproxy/internal/logging"
)

// newLogger returns the process's log, which writes to w; the parts name their own sub-loggers. Durations are numbers
// of seconds. cfg has been verified.
func newLogger(cfg LogConfig, w io.Writer) (*zap.Logger, *logForm) {
	encoding := zap.NewProductionEncoderConfig()
	encoding.TimeKey = "time"
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoding.EncodeDuration = zapcore.SecondsDurationEncoder
	encoding.EncodeLevel = logging.EncodeLevel
	form := &logForm{level: zap.NewAtomicLevel()}
	form.set(cfg)
	out := zapcore.Lock(zapcore.AddSync(unsynced{w}))
	core := formed{form: form, Core: zapcore.NewCore(zapcore.NewJSONEncoder(encoding), out, form.level)}
	encoding.EncodeTime = zapcore.TimeEncoderOfLayout("2006-01-02 15:04:05.000")
	core.console = zapcore.NewCore(zapcore.NewConsoleEncoder(encoding), out, form.level)
	return zap.New(core, zap.AddStacktrace(zap.LevelEnablerFunc(never))), form
}

// logForm is the part of a LogConfig that can change while the log is in use: all of it.
type logForm struct {
	level   zap.AtomicLevel
	console atomic.Bool
}

// set applies a configuration that has been verified.
func (f *logForm) set(cfg LogConfig) {
	if level, err := zapcore.ParseLevel(cfg.Level); err == nil {
		f.level.SetLevel(level)
	}
	f.console.Store(cfg.Format == "console")
}

// formed writes each entry in the form of its moment.
type formed struct {
	form         *logForm
	zapcore.Core // json
	console      zapcore.Core
}

// With implements zapcore.Core.
func (c formed) With(fields []zapcore.Field) zapcore.Core {
	return formed{form: c.form, Core: c.Core.With(fields), console: c.console.With(fields)}
}

// Check implements zapcore.Core.
func (c formed) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.form.console.Load() {
		return c.console.Check(e, to)
	}
	return c.Core.Check(e, to)
}

// unsynced hides the Sync of a file. Entries above the level error would have it called for each.
type unsynced struct{ io.Writer }

// never is the rule for stack traces. By default zap adds one to each entry above the level fatal, and the level audit
// is there.
func never(zapcore.Level) bool { return false }
