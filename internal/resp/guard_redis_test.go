package resp

import (
	"errors"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"

	"pgregory.net/rapid"
)

// TestGuardAgreesWithRedis sends what the guard is given to a real Redis as well. Redis must answer the raw input as it
// answers the guard's commands plus the guard's error.
func TestGuardAgreesWithRedis(t *testing.T) {
	open := redistest.Start(t)
	locked := redistest.Start(t, "--requirepass", "secret")
	agree := func(t tester, input []byte) {
		t.Helper()
		for _, restricted := range []bool{false, true} {
			server := open
			if restricted {
				server = locked
			}
			if !restricted && differs(input) {
				continue
			}
			g := NewGuard()
			g.Restrict(restricted)
			v := guarded(t, g, input, all)
			want := exchange(t, server.Socket(), []byte(v.Raw))
			if v.Err != "" {
				want += string(AppendError(nil, Err, v.Err))
			}
			if got := exchange(t, server.Socket(), input); got != want {
				t.Fatalf("%.200q, restricted %v:\nRedis %q\nguard %q of %q, %s", input, restricted, got, want, v.Raw, v.Err)
			}
		}
	}
	for _, c := range guardCases {
		if len(c.input) > 60000 && c.err == "" || c.name == "longest header" || c.name == "inline too long" {
			continue // Redis decides by how its reads happened to be cut
		}
		t.Run(c.name, func(t *testing.T) { agree(t, []byte(c.input)) })
	}
	t.Run("drawn", func(t *testing.T) {
		rapid.Check(t, func(r *rapid.T) { agree(t, requests(r)) })
	})
}

// differs reports whether the input has a number of arguments that Redis takes and the guard does not.
func differs(input []byte) bool {
	return slices.ContainsFunc(longCount.FindAllSubmatch(input, -1), func(m [][]byte) bool {
		count, _ := parseLength(m[1])
		return count > maxArgs && count <= maxRedisArgs
	})
}

var longCount = regexp.MustCompile(`\*(\d{7,10})\r`)

// exchange sends the input, closes its direction, and returns all that Redis answers until it hangs up.
func exchange(t tester, socket string, input []byte) string {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatalf("ask Redis: %v", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatalf("ask Redis: %v", err)
	}
	// Redis may answer an error and close before it has read everything.
	if _, err := conn.Write(input); err != nil && !hungUp(err) {
		t.Fatalf("ask Redis: %v", err)
	}
	if err := conn.CloseWrite(); err != nil && !hungUp(err) {
		t.Fatalf("ask Redis: %v", err)
	}
	var answer strings.Builder
	if _, err := io.Copy(&answer, conn); err != nil && !hungUp(err) {
		t.Fatalf("ask Redis: %v", err)
	}
	return answer.String()
}

func hungUp(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ENOTCONN)
}
