package main

import (
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/lockproxy/lockproxy/internal/logging"
)

// newLogger returns the process's log, which writes to w, and its level, which may change; the parts name their own
// sub-loggers. Durations are numbers of seconds. cfg has been verified.
func newLogger(cfg LogConfig, w io.Writer) (*zap.Logger, zap.AtomicLevel) {
	encoding := zap.NewProductionEncoderConfig()
	encoding.TimeKey = "time"
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoding.EncodeDuration = zapcore.SecondsDurationEncoder
	encoding.EncodeLevel = logging.EncodeLevel
	encoder := zapcore.NewJSONEncoder(encoding)
	if cfg.Format == "console" {
		encoding.EncodeTime = zapcore.TimeEncoderOfLayout("2006-01-02 15:04:05.000")
		encoder = zapcore.NewConsoleEncoder(encoding)
	}
	level := zap.NewAtomicLevel()
	setLevel(level, cfg)
	out := zapcore.Lock(zapcore.AddSync(unsynced{w}))
	return zap.New(zapcore.NewCore(encoder, out, level), zap.AddStacktrace(zap.LevelEnablerFunc(never))), level
}

// setLevel has the log begin at the level of a configuration that has been verified.
func setLevel(level zap.AtomicLevel, cfg LogConfig) { _ = level.UnmarshalText([]byte(cfg.Level)) }

// unsynced hides the Sync of a file. Entries above the level error would have it called for each.
type unsynced struct{ io.Writer }

// never is the rule for stack traces. By default zap adds one to each entry above the level fatal, and the level audit
// is there.
func never(zapcore.Level) bool { return false }
