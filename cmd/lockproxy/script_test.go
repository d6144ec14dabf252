package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// patience bounds each wait of a script.
const patience = time.Minute

// TestScripts runs the program as its users do: each testdata/script/*.txtar is one session in a shell. Beside the
// commands of testscript there are
//
//	redis NAME [tls] ARGS        starts a Redis; its address is $NAME
//	ask NAME COMMAND             prints the answer of a Redis
//	proxy NAME ARGS              starts a proxy that serves $REDIS; its address is $NAME and that of LOCKPROXY_URL
//	start NAME PROGRAM ARGS      starts a program beside the script
//	says NAME REGEXP             waits for an output of it; a group (?P<VARIABLE>…) sets a variable
//	signal NAME SIGNAL           sends a signal to it, or to the processes of a file, or STOP or CONT to a Redis
//	ends NAME CODE               waits for its end, and prints its output
//	connect NAME ADDRESS         connects a client, which stays until hangup NAME
//	talk NAME COMMANDS           prints the first line of each answer
//	until REGEXP COMMAND ARGS    repeats a program, ask or get until its output has a match
//	exits CODE PROGRAM ARGS      runs a program and demands its exit code
//	feed FILE                    writes a line to the reader of a pipe; the pipe "wait" is there
//	port NAME                    reserves a port of this machine; $NAME is its address
//	knock ADDRESS DURATION       connects new clients for that time, each of which has a PING answered
//	gone FILE                    waits for the end of the processes whose numbers are in a file
//	get URL                      prints the answer over HTTP
//	certificate NAME [AGE]       issues one that is valid for an hour; $NAME_CERT, $NAME_KEY and $CA are its files
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, scripts("script"))
}

// scripts are those of a directory.
func scripts(dir string) testscript.Params {
	return testscript.Params{
		Dir: filepath.Join("testdata", dir), Deadline: time.Now().Add(4 * time.Minute),
		Setup: setUp,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"redis": on((*stage).startRedis), "ask": on((*stage).ask), "proxy": on((*stage).startProxy),
			"start": on((*stage).start), "says": on((*stage).says), "signal": on((*stage).signal), "ends": on((*stage).ends),
			"connect": on((*stage).connect), "talk": on((*stage).talk), "hangup": on((*stage).hangUp), "until": on((*stage).until), "exits": on((*stage).exits),
			"feed": on((*stage).feed), "port": on((*stage).port), "knock": on((*stage).knock),
			"gone": on((*stage).gone), "get": on((*stage).get), "certificate": on((*stage).certificate),
		},
	}
}

// logBuffer collects what a process writes.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// stage is what one script has started.
type stage struct {
	*testscript.TestScript

	t         testing.TB
	redises   map[string]*redistest.Server
	programs  map[string]*actor
	clients   map[string]net.Conn
	authority *redistest.Authority
	screen    *screen
}

// actor is a program that runs beside a script.
type actor struct {
	*redistest.Process

	out logBuffer // of both
}

func setUp(env *testscript.Env) error {
	env.Values["stage"] = &stage{
		t: env.T().(testing.TB), redises: map[string]*redistest.Server{}, programs: map[string]*actor{}, clients: map[string]net.Conn{},
	}
	env.Setenv("GORACE", "atexit_sleep_ms=20 "+os.Getenv("GORACE"))
	return syscall.Mkfifo(filepath.Join(env.WorkDir, "wait"), 0o600) // for commands that wait
}

// on makes a method a command, whose output it prints.
func on(method func(s *stage, args []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		s := ts.Value("stage").(*stage)
		if s.TestScript = ts; neg || len(args) == 0 {
			ts.Fatalf("it is not negated, and has arguments")
		}
		method(s, args)
	}
}

func (s *stage) print(v ...any) { fmt.Fprintln(s.Stdout(), v...) }

// await waits for something that a script is about.
func (s *stage) await(claim string, holds func() bool) {
	for began := time.Now(); !holds(); time.Sleep(10 * time.Millisecond) { // between two looks; nobody tells of it
		if time.Since(began) > patience {
			s.Fatalf("waited %v in vain for %s", patience, claim)
		}
	}
}

func (s *stage) startRedis(args []string) {
	name, args := args[0], args[1:]
	var r *redistest.Server
	var addr string
	if len(args) > 0 && args[0] == "tls" {
		s.needAuthority()
		r, addr = redistest.StartTLS(s.t, s.authority, args[1:]...)
	} else {
		r = redistest.Start(s.t, args...)
		addr = r.Addr()
	}
	s.redises[name] = r
	s.Setenv(name, addr)
}

func (s *stage) ask(args []string) { s.print(s.answerOf(args)) }

// answerOf is the answer of a Redis to a command.
func (s *stage) answerOf(args []string) any {
	words := make([]any, len(args)-1)
	for i, word := range args[1:] {
		words[i] = word
	}
	return s.redises[args[0]].Do(s.t, words...)
}

func (s *stage) startProxy(args []string) {
	name, args := args[0], args[1:]
	if !slices.Contains(args, "--listen") {
		args = append(args, "--listen", "127.0.0.1:0")
	}
	s.start(append([]string{name, "lockproxy", "--upstream", s.Getenv("REDIS"), "--drain-timeout", "10ms"}, args...))
	s.says([]string{name, `Z","msg":"listening","addr":"(?P<` + name + `>[^"]+)"`})
	s.says([]string{name, "connected to upstream"})
	s.Setenv("LOCKPROXY_URL", "redis://"+s.Getenv(name))
}

// command is a program in the directory and with the variables of the script.
func (s *stage) command(args []string) *exec.Cmd {
	s.Check(s.Exec("env", "-0"))
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Dir = strings.Split(strings.TrimSuffix(s.ReadFile("stdout"), "\x00"), "\x00"), s.MkAbs(".")
	return cmd
}

func (s *stage) start(args []string) {
	cmd := s.command(args[1:])
	p := &actor{}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &p.out, &p.out, patience
	var err error
	p.Process, err = redistest.StartProcess(cmd)
	s.Check(err)
	s.programs[args[0]] = p
	s.t.Cleanup(func() {
		p.Kill()
		if strings.Contains(p.out.String(), "DATA RACE") {
			s.t.Errorf("%s has a race", args[0])
		}
		if s.t.Failed() {
			s.t.Logf("%s says\n%s", args[0], p.out.String())
		}
	})
}

func (s *stage) says(args []string) {
	pattern, p := regexp.MustCompile("(?m)"+args[1]), s.programs[args[0]]
	var found []string
	s.await(args[1], func() bool { found = pattern.FindStringSubmatch(p.out.String()); return found != nil })
	for i, name := range pattern.SubexpNames() {
		if name != "" {
			s.Setenv(name, found[i])
		}
	}
}

func (s *stage) signal(args []string) {
	sig := unix.SignalNum("SIG" + args[1])
	p, r := s.programs[args[0]], s.redises[args[0]]
	switch {
	case p != nil:
		p.Signal(sig)
	case r != nil && sig == unix.SIGSTOP:
		r.Pause()
		s.t.Cleanup(r.Continue)
	case r != nil:
		r.Continue()
	default:
		for _, pid := range s.pids(args[0]) {
			s.Check(syscall.Kill(pid, sig))
		}
	}
}

func (s *stage) ends(args []string) {
	p := s.programs[args[0]]
	s.await("the end of "+args[0], func() bool { return !p.Running() })
	_, _ = io.WriteString(s.Stdout(), p.out.String())
	if got := strconv.Itoa(p.Cmd.ProcessState.ExitCode()); got != args[1] {
		s.Fatalf("exit code %s, want %s: %s", got, args[1], p.out.String())
	}
}

func (s *stage) connect(args []string) {
	nc, err := net.Dial("tcp", args[1])
	s.Check(err)
	s.t.Cleanup(func() { nc.Close() })
	s.Check(nc.SetDeadline(time.Now().Add(4 * patience)))
	s.clients[args[0]] = nc
}

func (s *stage) talk(args []string) {
	nc := s.clients[args[0]]
	in := bufio.NewReader(nc)
	for _, command := range args[1:] {
		_, err := io.WriteString(nc, command+"\r\n")
		s.Check(err)
		line, err := in.ReadString('\n')
		s.Check(err)
		s.print(strings.TrimSpace(line))
	}
}

func (s *stage) hangUp(args []string) { s.clients[args[0]].Close() }

func (s *stage) until(args []string) {
	pattern := regexp.MustCompile("(?m)" + args[0])
	s.await(strings.Join(args, " "), func() bool {
		switch args[1] {
		case "ask":
			return pattern.MatchString(fmt.Sprint(s.answerOf(args[2:])))
		case "get":
			answer, err := fetch(args[2])
			return pattern.MatchString(fmt.Sprint(answer, err))
		}
		_ = s.Exec(args[1], args[2:]...) // it may fail for a while
		return pattern.MatchString(s.ReadFile("stdout"))
	})
}

func (s *stage) exits(args []string) {
	err := s.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			s.Fatalf("%v", err)
		}
		got = strconv.Itoa(exit.ExitCode())
	}
	if got != args[0] {
		s.Fatalf("exit code %s, want %s", got, args[0])
	}
}

func (s *stage) pids(file string) (all []int) {
	for word := range strings.FieldsSeq(s.ReadFile(file)) {
		pid, err := strconv.Atoi(word)
		s.Check(err)
		all = append(all, pid)
	}
	return all
}

func (s *stage) feed(args []string) {
	s.await("a reader of "+args[0], func() bool {
		fed, err := feed(s.MkAbs(args[0]))
		s.Check(err)
		return fed
	})
}

// feed writes a line to the reader of a pipe. fed is false if there is no reader.
func feed(file string) (fed bool, err error) {
	pipe, err := os.OpenFile(file, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENXIO) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	defer pipe.Close()
	_, err = pipe.WriteString("go on\n")
	return true, err
}

func (s *stage) port(args []string) {
	s.Setenv(args[0], fmt.Sprint("127.0.0.1:", redistest.Port(s.t)))
}

func (s *stage) knock(args []string) {
	period, err := time.ParseDuration(args[1])
	s.Check(err)
	resets := 0
	for began := time.Now(); time.Since(began) < period; {
		nc, err := net.Dial("tcp", args[0])
		s.Check(err)
		s.Check(nc.SetDeadline(time.Now().Add(patience)))
		_, err = io.WriteString(nc, "PING\r\n")
		line := make([]byte, len("+PONG\r\n"))
		if err == nil {
			_, err = io.ReadFull(nc, line)
		}
		nc.Close()
		if errors.Is(err, syscall.ECONNRESET) { // connected by the system between the last look at the queue and its end
			if resets++; resets > 1 {
				s.Fatalf("two clients are reset")
			}
		} else if err != nil || string(line) != "+PONG\r\n" {
			s.Fatalf("PING: %q, %v", line, err)
		}
	}
}

func (s *stage) gone(args []string) {
	for _, pid := range s.pids(args[0]) {
		s.await("the end of process "+strconv.Itoa(pid), func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || err == nil && strings.Contains(string(stat), ") Z ") // a zombie that nobody collects
		})
	}
}

func (s *stage) get(args []string) {
	answer, err := fetch(args[0])
	s.Check(err)
	s.print(answer)
}

// fetch is the status and the body of a document.
func fetch(url string) (string, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	answer, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	return answer.Status + "\n" + string(b), err
}

func (s *stage) needAuthority() {
	if s.authority == nil {
		s.authority = redistest.NewAuthority(s.t)
		s.Setenv("CA", s.authority.File())
	}
}

func (s *stage) certificate(args []string) {
	s.needAuthority()
	age := time.Minute
	if len(args) > 1 {
		var err error
		age, err = time.ParseDuration(args[1])
		s.Check(err)
	}
	cert, key := s.authority.IssueFrom(s.t, args[0], time.Now().Add(-age))
	s.Setenv(args[0]+"_CERT", cert)
	s.Setenv(args[0]+"_KEY", key)
}
