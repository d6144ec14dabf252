package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/lockproxy/lockproxy/internal/logging"
)

// fullDisk takes nothing until it has space.
type fullDisk struct {
	bytes.Buffer

	full bool
}

func (d *fullDisk) Write(text []byte) (int, error) {
	if d.full {
		return 0, syscall.ENOSPC
	}
	return d.Buffer.Write(text)
}

func TestTheLogSaysHowManyEntriesAreMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &fullDisk{full: true}
		log, _, output := newLogger(LogConfig{Level: "error"}, disk)
		for level, n := range map[zapcore.Level]int{zap.ErrorLevel: 2, logging.Audit: 1, zap.WarnLevel: 5} {
			for range n {
				log.Log(level, "missing")
			}
		}
		synctest.Wait()
		disk.full = false
		log.Named("part").Error("after")
		output.Close(time.Minute)
		first, second, _ := strings.Cut(disk.String(), "\n")
		if !strings.HasPrefix(first, `{"level":"audit","time":"`) ||
			!strings.HasSuffix(first, `"msg":"entries dropped: the log was not read","entries":2,"audit_entries":1}`) {
			t.Error(first)
		}
		if !strings.Contains(second, `"logger":"part","msg":"after"`) {
			t.Error(second)
		}
	})
}

func TestEntriesHaveNoStackTrace(t *testing.T) {
	var out bytes.Buffer
	log, _, output := newLogger(LogConfig{Level: "error"}, &out)
	log.Log(logging.Audit, "login failed")
	log.Error("upstream is not a Redis server")
	output.Close(time.Minute)
	if lines := strings.Count(out.String(), "\n"); lines != 2 || strings.Contains(out.String(), "stacktrace") {
		t.Errorf("two entries are %d lines:\n%s", lines, out.String())
	}
}

func TestTheLogIsForPeopleAtATerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer terminal.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if !isTerminal(terminal) || isTerminal(file) || isTerminal(new(bytes.Buffer)) {
		t.Errorf("a terminal: %v, a file: %v", isTerminal(terminal), isTerminal(file))
	}
}

// A fatal entry ends the process, also if it cannot be written.
func TestAFatalEntryIsNotWaitedForToTheEnd(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Args[0], cmd.Stderr = "fatal", writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitFailure {
		t.Error(err)
	}
	if text, err := io.ReadAll(reader); err != nil || !strings.Contains(string(text), "entry") {
		t.Errorf("the log is %d bytes, %v", len(text), err)
	}
}

// fatal is a program that ends with more entries than its reader takes.
func fatal() {
	log, _, _ := newLogger(LogConfig{Level: "info"}, os.Stderr)
	for range 2000 {
		log.Info("entry")
	}
	log.Fatal("the end")
}
