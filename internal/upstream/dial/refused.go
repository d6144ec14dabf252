package dial

import (
	"errors"
	"io"
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

// A Failure is why a lane or pin has no connection. The zero value: no attempt has failed. All methods may be called
// from any goroutine.
type Failure struct{ latest atomic.Pointer[failure] }

type failure struct {
	refusal            []byte
	hopeless, rejected bool
}

func (f *Failure) get() failure {
	if l := f.latest.Load(); l != nil {
		return *l
	}
	return failure{}
}

// Refusal is the reply to every command that waits for the connection: Redis's own reply to a step of the handshake (it
// is busy with a script, or has too many clients). nil: there is none, because Redis cannot be reached, or refuses the
// proxy's own credentials.
func (f *Failure) Refusal() []byte { return f.get().refusal }

// Hopeless reports whether the cause is another one than that the server is away, so that no command waits for a
// successor: Redis has refused the connection, or the configuration is wrong.
func (f *Failure) Hopeless() bool { return f.get().hopeless }

// Rejected reports whether Redis has refused the identity's credentials: its clients lose their connections.
func (f *Failure) Rejected() bool { return f.get().rejected }

// Reject notes that Redis has refused the identity's credentials.
func (f *Failure) Reject() { f.latest.Store(&failure{hopeless: true, rejected: true}) }

// Tried notes the outcome of an attempt to connect. own: the credentials are the proxy's, whose rights are not the
// client's.
func (f *Failure) Tried(err error, own bool) {
	refused, isRefused := errors.AsType[*RefusedError](err)
	switch {
	case err == nil:
		f.latest.Store(nil)
	case IsRejected(err) && !own && !isPassing(err):
		f.Reject()
	case isRefused && !(own && IsRejected(err)):
		f.latest.Store(&failure{refusal: resp.AppendRawError(nil, refused.Reply), hopeless: true})
	default:
		f.latest.Store(&failure{hopeless: IsLasting(err)})
	}
}

// ErrNotRedis says that the server speaks another protocol than Redis's.
var ErrNotRedis = errors.New("upstream is not a Redis server")

// Cause says in a few words why a connection with the proxy's own credentials, or with none, could not be made. Time
// cures all causes but the first two.
func Cause(err error) string {
	switch {
	case IsRejected(err):
		return "upstream refused the proxy's credentials"
	case errors.Is(err, ErrNotRedis):
		return ErrNotRedis.Error()
	case isCrowded(err):
		return "upstream has as many clients as its maxclients allows"
	}
	return "upstream is not reachable"
}

// IsLasting reports whether time does not cure a failure to connect with the proxy's own credentials: the configuration
// is wrong.
func IsLasting(err error) bool { return IsRejected(err) || errors.Is(err, ErrNotRedis) }

// codeOf is the first word of the error with which Redis has refused a connection; "": it has not.
func codeOf(err error) string {
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok {
		return ""
	}
	code, _, _ := strings.Cut(refused.Reply, " ")
	return code
}

// isPassing reports whether the reply also applies to the command: a script does not end, the connection needs
// credentials, or the user may not select the database.
func isPassing(err error) bool {
	code := codeOf(err)
	return code == "BUSY" || code == "NOAUTH" || code == "NOPERM"
}

// IsRefused reports whether Redis itself refused the connection.
func IsRefused(err error) bool {
	_, refused := errors.AsType[*RefusedError](err)
	return refused
}

// IsCut reports whether the other side closed the connection in the middle of the handshake.
func IsCut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// IsTemporary reports whether Redis refused for a reason that time cures: it has too many clients, loads its data, or
// runs a script.
func IsTemporary(err error) bool {
	switch codeOf(err) {
	case "BUSY", "LOADING", "MASTERDOWN":
		return true
	}
	return isCrowded(err)
}

// isCrowded reports whether Redis has as many clients as its maxclients allows.
func isCrowded(err error) bool {
	refused, ok := errors.AsType[*RefusedError](err)
	return ok && strings.HasPrefix(refused.Reply, "ERR max number of clients")
}

// IsWrongPassword reports whether Redis refused the credentials themselves, and not a command of their user.
func IsWrongPassword(err error) bool { return codeOf(err) == "WRONGPASS" }

// IsRejected reports whether Redis refused the connection's credentials, or that their user does what the handshake
// needs.
func IsRejected(err error) bool {
	code := codeOf(err)
	return code == "WRONGPASS" || code == "NOAUTH" || code == "NOPERM"
}
