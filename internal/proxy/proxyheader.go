package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/pires/go-proxyproto"
)

// headerBuffer holds any header of version 1, and one of version 2 without many extras.
const headerBuffer = 512

// readProxyHeader reads a header of the PROXY protocol, version 1 or 2, in which a load balancer names its client. It
// returns the client's address, and the bytes that it has read beyond the header. Without a header, all bytes are
// beyond it.
func readProxyHeader(nc net.Conn, required bool) (addr string, rest []byte, err error) {
	r := bufio.NewReaderSize(nc, headerBuffer)
	addr = nc.RemoteAddr().String()
	has, err := announcesHeader(r)
	switch {
	case err != nil:
		return addr, nil, err
	case has:
		if err := awaitHeaderLine(r); err != nil {
			return addr, nil, err
		}
		acceptUnspecified(r)
		h, err := proxyproto.Read(r)
		if err != nil {
			return addr, nil, fmt.Errorf("proxy protocol: %w", err)
		}
		// LOCAL is the load balancer's own connection, a health check for instance. The path of a unix socket may be
		// any bytes, such as a line of CLIENT LIST, so it is not taken.
		if source := h.SourceAddr; h.Command.IsProxy() && source != nil && !h.TransportProtocol.IsUnix() {
			addr = source.String()
		}
	case required:
		return addr, nil, errors.New("proxy protocol: no header")
	}
	rest, err = r.Peek(r.Buffered())
	return addr, bytes.Clone(rest), err
}

// acceptUnspecified has a header of version 2 that names no addresses (AF_UNSPEC) read as a balancer's own connection
// (LOCAL): the client's address is that of the socket. The specification lets a receiver accept or refuse it, package
// proxyproto refuses it, and HAProxy and nginx accept it. The family and the transport of a LOCAL header mean nothing,
// so they may be any. Both bytes are part of what r has buffered.
func acceptUnspecified(r *bufio.Reader) {
	const command, family, proxied, local = 12, 13, 0x21, 0x20
	b, err := r.Peek(family + 1)
	if err != nil || !bytes.HasPrefix(b, proxyproto.SIGV2) {
		return
	}
	if b[command] == local || b[command] == proxied && b[family]>>4 == byte(proxyproto.UNSPEC)>>4 {
		b[command], b[family] = local, byte(proxyproto.UNSPEC)
	}
}

// longestHeaderLine is the length of the longest header of version 1.
const longestHeaderLine = 107

// awaitHeaderLine reads until the first line is whole, and no byte of the next one unless it has arrived with the line.
// It ends early if the line is too long, and for a header of version 2, which begins with an empty line. proxyproto
// refuses a line of which a part is still on its way.
func awaitHeaderLine(r *bufio.Reader) error {
	for n := 1; n <= longestHeaderLine; n = r.Buffered() + 1 {
		if _, err := r.Peek(n); err != nil {
			return err
		}
		if b, _ := r.Peek(r.Buffered()); bytes.IndexByte(b, '\n') >= 0 {
			break
		}
	}
	return nil
}

// announcesHeader reports whether a header begins here. It reads no byte more than it needs for the answer: a client
// that sends a short inline command waits for its reply before it sends more.
func announcesHeader(r *bufio.Reader) (bool, error) {
	for n := 1; ; n++ {
		b, err := r.Peek(n)
		switch {
		case errors.Is(err, io.EOF) && len(b) > 0:
			return false, nil // the bytes so far may still be a command
		case err != nil:
			return false, err
		case bytes.Equal(b, proxyproto.SIGV1), bytes.Equal(b, proxyproto.SIGV2):
			return true, nil
		case !bytes.HasPrefix(proxyproto.SIGV1, b) && !bytes.HasPrefix(proxyproto.SIGV2, b):
			return false, nil
		}
	}
}
