package embedded

import (
	"crypto/sha1"
	"encoding/hex"
	"regexp"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2/server"
)

// Errors of scripts. miniredis answers with the text of its Lua interpreter, a trace of its stack behind it, and calls
// each error one of compilation:
//
//	ERR Error compiling script (new function): :1: boom stack traceback:  [G]: in function 'error'  :1: in main …
//
// Redis says where the script has failed:
//
//	ERR user_script:1: boom script: 872b…, on @user_script:1.

var (
	failed = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(
			`^-ERR Error compiling script \(new function\): (?::\d+: )?(.*?)(?: script: [0-9a-f]{40}, &c\.?)?` +
				` stack traceback: (.*)\r\n$`)
	})
	lastLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`:(\d+): in main chunk`) })
)

// script answers a command that runs a script, with its error as Redis would have it. It reports whether it has
// answered.
func (s *Server) script(c *server.Peer, cmd string, args []string) bool {
	if _, inner := s.inner.Load(c); inner || len(args) == 0 {
		return false
	}
	reply := s.caught(c, cmd, args)
	name := strings.ToLower(args[0])
	if !strings.HasPrefix(cmd, "EVALSHA") {
		sum := sha1.Sum([]byte(args[0]))
		name = hex.EncodeToString(sum[:])
	}
	c.WriteRaw(redisError(reply, name))
	return true
}

// redisError is the reply to a script with that name. A reply that is no error of the interpreter stays as it is.
func redisError(reply, name string) string {
	found := failed().FindStringSubmatch(reply)
	if found == nil {
		return reply
	}
	text, trace := found[1], found[2]
	line := "1"
	if at := lastLine().FindStringSubmatch(trace); at != nil {
		line = at[1]
	}
	switch code, _, _ := strings.Cut(text, " "); {
	case strings.HasPrefix(text, "table: "):
		text = "ERR unknown error"
	case !strings.Contains(trace, "in function 'call'"):
		text = "ERR user_script:" + line + ": " + text
	case code != strings.ToUpper(code): // miniredis has refused the call
		text = "ERR " + text
	}
	return "-" + text + " script: " + name + ", on @user_script:" + line + ".\r\n"
}
