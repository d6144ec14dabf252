package dial

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"lockproxy/internal/resp"
)

// RefusedError says that Redis was reached but did not accept a connection's handshake.
type RefusedError struct {
	// Reply is Redis's error text without the leading '-'.
	Reply string
}

func (e *RefusedError) Error() string { return "upstream refused the connection: " + e.Reply }

// Refusal is Redis's reply to a handshake where it is also the reply to every command that waits for the connection.
type Refusal struct{ words atomic.Pointer[[]byte] }

// Get returns the reply; nil: there is none.
func (r *Refusal) Get() []byte {
	if b := r.words.Load(); b != nil {
		return *b
	}
	return nil
}

// Note keeps the reason of a failed attempt to connect. own: the credentials are the proxy's, whose rights are not the client's.
func (r *Refusal) Note(err error, own bool) {
	var refused *RefusedError
	if errors.As(err, &refused) && !(own && IsRejected(err)) && slices.Contains(passing, refused.code()) {
		b := resp.AppendRawError(nil, refused.Reply)
		r.words.Store(&b)
		return
	}
	r.words.Store(nil)
}

// passing are the codes of replies that also apply to the command: a script does not end, the connection needs credentials, or the
// user may not select the database.
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

// isCut reports whether the other side closed the connection in the middle of the handshake.
func isCut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// IsRejected reports whether Redis refused the connection's credentials.
func IsRejected(err error) bool {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return false
	}
	code := refused.code()
	return code == "WRONGPASS" || code == "NOAUTH" || code == "NOPERM"
}
