package dial

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// RefusedError says that Redis was reached but did not accept a connection's handshake.
type RefusedError struct {
	// Reply is Redis's error text without the leading '-'.
	Reply string
}

func (e *RefusedError) Error() string { return "upstream refused the connection: " + e.Reply }

// Refusal is the reply to every command that waits for a connection which could not be made: Redis's own reply to a
// step of the handshake where that is also the reply to the command, else -NOUPSTREAM and the cause.
type Refusal struct{ latest atomic.Pointer[words] }

// words are a reply. final: Redis has refused the connection, or the configuration is wrong; the server is not away.
type words struct {
	reply []byte
	final bool
}

// Get returns the reply; nil: there is none.
func (r *Refusal) Get() []byte {
	if w := r.latest.Load(); w != nil {
		return w.reply
	}
	return nil
}

// IsFinal reports whether there is a reply, and no successor of the server is to be awaited: Redis was reached.
func (r *Refusal) IsFinal() bool {
	w := r.latest.Load()
	return w != nil && w.final
}

// Note keeps the reason of a failed attempt to connect; nil: the connection was made. own: the credentials are the
// proxy's, whose rights are not the client's. There is no reply for a client whose credentials Redis has refused: it
// loses its connection.
func (r *Refusal) Note(err error, own bool) {
	var refused *RefusedError
	isRefused := errors.As(err, &refused)
	var b []byte
	switch {
	case err == nil, IsRejected(err) && !own && !isPassing(err):
		r.latest.Store(nil)
		return
	case isRefused && isPassing(err) && !(own && IsRejected(err)):
		b = resp.AppendRawError(nil, refused.Reply)
	default:
		b = resp.AppendError(nil, resp.NoUpstream, Cause(err)+", nothing was sent")
	}
	r.latest.Store(&words{b, isRefused || IsLasting(err)})
}

// ErrNotRedis says that the server speaks another protocol than Redis's.
var ErrNotRedis = errors.New("upstream is not a Redis server")

// Cause says in a few words why a connection with the proxy's own credentials, or with none, could not be made. Time
// cures all causes that are not named: Redis is away, loads its data, or has too many clients.
func Cause(err error) string {
	switch {
	case IsRejected(err):
		return "upstream refused the proxy's credentials"
	case errors.Is(err, ErrNotRedis):
		return ErrNotRedis.Error()
	}
	return "upstream is not reachable"
}

// IsLasting reports whether time does not cure a failure to connect with the proxy's own credentials: the configuration
// is wrong.
func IsLasting(err error) bool { return IsRejected(err) || errors.Is(err, ErrNotRedis) }

func isPassing(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && slices.Contains(passing, refused.code())
}

// passing are the codes of replies that also apply to the command: a script does not end, the connection needs
// credentials, or the user may not select the database.
var passing = []string{"BUSY", "NOAUTH", "NOPERM"}

// code is the first word of the error.
func (e *RefusedError) code() string {
	code, _, _ := strings.Cut(e.Reply, " ")
	return code
}

// IsRefused reports whether Redis itself refused the connection.
func IsRefused(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused)
}

// IsCut reports whether the other side closed the connection in the middle of the handshake.
func IsCut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// IsTemporary reports whether Redis refused for a reason that time cures: it has too many clients, loads its data, or
// runs a script.
func IsTemporary(err error) bool {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.code() {
	case "BUSY", "LOADING", "MASTERDOWN":
		return true
	}
	return strings.HasPrefix(refused.Reply, "ERR max number of clients")
}

// IsWrongPassword reports whether Redis refused the credentials themselves, and not a command of their user.
func IsWrongPassword(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && refused.code() == "WRONGPASS"
}

// IsRejected reports whether Redis refused the connection's credentials, or that their user does what the handshake
// needs.
func IsRejected(err error) bool {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return false
	}
	code := refused.code()
	return code == "WRONGPASS" || code == "NOAUTH" || code == "NOPERM"
}
