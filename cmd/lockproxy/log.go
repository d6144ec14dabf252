package main

import (
	"io"
	"os"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/lockproxy/lockproxy/internal/logging"
)

// lastEntries is the time that the process waits at its end for the reader of its log.
const lastEntries = time.Second

// newLogger returns the process's log, which writes to w, and its level, which may change; the parts name their own
// sub-loggers. It has lines of JSON, and at a terminal lines for people. Durations are numbers of seconds. cfg has been
// verified. The output is closed before the process ends.
func newLogger(cfg LogConfig, w io.Writer) (*zap.Logger, zap.AtomicLevel, *logging.Output) {
	encoding := zap.NewProductionEncoderConfig()
	encoding.TimeKey = "time"
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoding.EncodeDuration = zapcore.SecondsDurationEncoder
	encoding.EncodeLevel = logging.EncodeLevel
	encoder := zapcore.NewJSONEncoder(encoding)
	if isTerminal(w) {
		encoding.EncodeTime = zapcore.TimeEncoderOfLayout("2006-01-02 15:04:05.000")
		encoder = zapcore.NewConsoleEncoder(encoding)
	}
	level := zap.NewAtomicLevel()
	setLevel(level, cfg)

	out := logging.NewOutput(w, func(dropped logging.Dropped) []byte {
		entry := zapcore.Entry{Level: zap.WarnLevel, Time: time.Now(), Message: "entries dropped: the log was not read"}
		if dropped[logging.Audits] > 0 {
			entry.Level = logging.Audit
		}
		line, err := encoder.EncodeEntry(entry, []zap.Field{
			zap.Int("entries", dropped[logging.Ordinary]), zap.Int("audit_entries", dropped[logging.Audits]),
		})
		if err != nil {
			return []byte(entry.Message + "\n")
		}
		defer line.Free()
		return append([]byte(nil), line.Bytes()...)
	})
	core := zapcore.NewTee(
		zapcore.NewCore(encoder, out.Of(logging.Ordinary), zap.LevelEnablerFunc(func(l zapcore.Level) bool {
			return l != logging.Audit && level.Enabled(l)
		})),
		zapcore.NewCore(encoder, out.Of(logging.Audits), zap.LevelEnablerFunc(func(l zapcore.Level) bool {
			return l == logging.Audit
		})),
	)
	log := zap.New(core, zap.AddStacktrace(zap.LevelEnablerFunc(never)), zap.WithFatalHook(ending{out}),
		zap.ErrorOutput(out.Of(logging.Ordinary)))
	return log, level, out
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 // or /dev/null, where it does not matter
}

// ending ends the process when a fatal entry is written, or cannot be.
type ending struct{ log *logging.Output }

// OnWrite implements zapcore.CheckWriteHook.
func (e ending) OnWrite(*zapcore.CheckedEntry, []zapcore.Field) {
	e.log.Close(lastEntries)
	os.Exit(exitFailure)
}

// setLevel has the log begin at the level of a configuration that has been verified.
func setLevel(level zap.AtomicLevel, cfg LogConfig) { _ = level.UnmarshalText([]byte(cfg.Level)) }

// never is the rule for stack traces. By default zap adds one to each entry above the level fatal, and the level audit
// is there.
func never(zapcore.Level) bool { return false }
