package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"lockproxy/internal/resp"
)

// RefusedError says that Redis was reached but did not accept a connection's handshake.
type RefusedError struct {
	// Reply is Redis's error text without the leading '-'.
	Reply string
}

func (e *RefusedError) Error() string { return "upstream refused the connection: " + e.Reply }

// refusal is Redis's reply to a handshake where it is also the reply to every command that waits for the connection.
type refusal struct{ words atomic.Pointer[[]byte] }

func (r *refusal) get() []byte {
	if b := r.words.Load(); b != nil {
		return *b
	}
	return nil
}

// note keeps the reason of a failed attempt to connect. own: the credentials are the proxy's, whose rights are not the client's.
func (r *refusal) note(err error, own bool) {
	var refused *RefusedError
	if errors.As(err, &refused) && !(own && isRejected(err)) && slices.Contains(passing, refused.code()) {
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

// open is dial for connections with waiting commands. While Redis cannot be reached, it does not dial, but waits for the common attempt
// of all connections. A connection that Redis closes within the handshake has been closed on purpose (CLIENT KILL), so open tries
// again.
func (u *Upstream) open(ctx context.Context, id Identity) (net.Conn, error) {
	limit := time.Now().Add(patience)
	for {
		var nc net.Conn
		err := u.reach.pass(ctx)
		if err == nil {
			nc, err = u.dial(ctx, id)
		}
		if err == nil || !isCut(err) || time.Now().After(limit) {
			return nc, err
		}
		select {
		case <-time.After(firstPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// dial opens a connection of identity id. After an error no connection stays open.
func (u *Upstream) dial(ctx context.Context, id Identity) (net.Conn, error) {
	nc, err := u.connectAs(ctx, id)
	if ctx.Err() == nil {
		u.reach.note(err)
	}
	return nc, err
}

func (u *Upstream) connectAs(ctx context.Context, id Identity) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, u.opts.DialTimeout)
	defer cancel()
	defer u.conns.attempt()()
	nc, err := u.connect(ctx)
	if err != nil {
		return nil, err
	}
	number, err := shake(ctx, nc, id.handshake())
	if err != nil {
		u.conns.closed(nc)
		abort(nc) // so that failed logins leave no ports in TIME_WAIT, however many they are
		return nil, err
	}
	u.conns.identified(nc, number)
	return nc, nil
}

// try finds out whether Redis can be reached. A refusal of the connection counts as reached.
func (u *Upstream) try(ctx context.Context) error {
	nc, err := u.dial(ctx, Identity{Proto: 2})
	if err == nil {
		u.hangUp(nc)
	}
	if isRefused(err) {
		return nil
	}
	return err
}

// hangUp closes a connection that was opened by dial or connect.
func (u *Upstream) hangUp(nc net.Conn) {
	u.conns.closed(nc)
	_ = nc.Close() // no session needs it any more
}

func (u *Upstream) connect(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: u.opts.KeepAlive, Interval: u.opts.KeepAlive / 3, Count: 3}}
	nc, err := d.DialContext(ctx, u.network, u.address)
	if err != nil {
		return nil, err
	}
	u.conns.opened(nc)
	if tc, ok := nc.(*net.TCPConn); ok {
		if err := SetUserTimeout(tc, u.opts.UserTimeout); err != nil {
			u.hangUp(nc)
			return nil, fmt.Errorf("set user timeout: %w", err)
		}
	}
	if u.opts.TLS == nil {
		return nc, nil
	}
	tc := tls.Client(nc, u.tlsConfig())
	if err := tc.HandshakeContext(ctx); err != nil {
		u.hangUp(nc)
		return nil, fmt.Errorf("tls handshake: %w", err)
	}
	u.conns.replaced(nc, tc)
	return tc, nil
}

// tlsConfig is for one connection.
func (u *Upstream) tlsConfig() *tls.Config {
	cfg := u.opts.TLS()
	if cfg.ServerName == "" && !cfg.InsecureSkipVerify {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(u.address) // a unix socket has no host: the handshake says so
	}
	return cfg
}

// shake sends all steps at once and reads their replies. The deadline of ctx bounds it. It returns the id that Redis gave the
// connection; 0: Redis did not say.
func shake(ctx context.Context, nc net.Conn, steps []step) (id uint64, err error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := nc.SetDeadline(deadline); err != nil {
			return 0, err
		}
	}
	var out []byte
	for _, st := range steps {
		out = append(out, st.cmd...)
	}
	if _, err := nc.Write(out); err != nil {
		return 0, err
	}
	rd := replyReader{nc: nc}
	for _, st := range steps {
		v, err := rd.next()
		if err != nil {
			return 0, err
		}
		if v.IsError() && (!st.optional || bytes.HasPrefix(v.Str, []byte("ERR max number of clients"))) {
			return 0, &RefusedError{Reply: string(v.Str)}
		}
		if st.hello {
			id = ConnectionID(v)
		}
	}
	return id, nc.SetDeadline(time.Time{})
}

// replyReader reads whole replies one after another: for handshakes and questions, not for traffic.
type replyReader struct {
	nc   net.Conn
	buf  []byte
	scan resp.Scanner
}

// next reads one reply, skipping pushes.
func (r *replyReader) next() (resp.Value, error) {
	b, err := r.raw()
	if err != nil {
		return resp.Value{}, err
	}
	v, _, err := resp.Decode(b)
	return v, err
}

// raw reads the bytes of one reply, skipping pushes.
func (r *replyReader) raw() ([]byte, error) {
	end := 0
	for {
		n, whole, err := r.scan.Scan(r.buf[end:])
		if err != nil {
			return nil, err
		}
		end += n
		if whole {
			b := r.buf[:end]
			r.buf, end = r.buf[end:], 0
			if r.scan.Kind() != '>' {
				return b, nil
			}
			continue
		}
		chunk := make([]byte, 16<<10)
		got, err := r.nc.Read(chunk)
		r.buf = append(r.buf, chunk[:got]...)
		if err != nil && got == 0 {
			return nil, err
		}
	}
}

// isRefused reports whether Redis itself refused the connection.
func isRefused(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused)
}

// isCut reports whether the other side closed the connection in the middle of the handshake.
func isCut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// isRejected reports whether Redis refused the connection's credentials.
func isRejected(err error) bool {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return false
	}
	code := refused.code()
	return code == "WRONGPASS" || code == "NOAUTH" || code == "NOPERM"
}

// Addr is Redis's address for people.
func (u *Upstream) Addr() string { return u.opts.Addr }

// Connect opens a bare connection for a client library that does its own handshake. When it is closed, the kernel drops what
// it has not delivered: a script that was given up during a cut must not run when the cut is over, and for example queue a
// waiter that has left.
func (u *Upstream) Connect(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, u.opts.DialTimeout)
	defer cancel()
	if err := u.reach.pass(ctx); err != nil {
		return nil, err
	}
	defer u.conns.attempt()()
	nc, err := u.connect(ctx)
	if err != nil {
		return nil, err
	}
	if tc, ok := bare(nc).(*net.TCPConn); ok {
		if err := tc.SetLinger(0); err != nil {
			u.hangUp(nc)
			return nil, fmt.Errorf("set linger: %w", err)
		}
	}
	return &lent{Conn: nc, census: &u.conns}, nil
}
