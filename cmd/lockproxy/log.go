package main

import (
	"fmt"
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/lockproxy/lockproxy/internal/logging"
)

// newLogger returns the process's log. It writes to w; the parts name their own sub-loggers. Durations are numbers of seconds. The level can be
// changed.
func newLogger(cfg LogConfig, w io.Writer) (*zap.Logger, zap.AtomicLevel, error) {
	level, err := zap.ParseAtomicLevel(cfg.Level)
	if err != nil {
		return nil, level, fmt.Errorf("log level: %w", err)
	}
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
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(unsynced{w})), level)
	return zap.New(core, zap.AddStacktrace(zap.LevelEnablerFunc(never))), level, nil
}

// unsynced hides the Sync of a file. Entries above the level error would have it called for each.
type unsynced struct{ io.Writer }

// never is the rule for stack traces. By default zap adds one to each entry above the level fatal, and the level audit is there.
func never(zapcore.Level) bool { return false }
