package proxy

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
)

const pipeAddr = "pipe" // the address of both ends of a net.Pipe

// headerV2 is a header of version 2, for a family of addresses.
func headerV2(family byte, addresses string) string {
	n := len(addresses)
	return string(proxyproto.SIGV2) + string([]byte{byte(proxyproto.PROXY), family, byte(n >> 8), byte(n)}) + addresses
}

func TestPROXYHeaderInPieces(t *testing.T) {
	t.Parallel()
	const line = "PROXY TCP4 192.0.2.7 192.0.2.1 4242 7379\r\n"
	inet := headerV2(byte(proxyproto.TCPv4), "\xc0\x00\x02\x07\xc0\x00\x02\x01\x10\x92\x1c\xd3")
	path := "/s name=x\nid=1 addr=192.0.2.9:1"
	unix := headerV2(byte(proxyproto.UnixStream), path+strings.Repeat("\x00", 216-len(path)))
	for _, test := range []struct {
		name   string
		pieces []string // each is one segment
		addr   string
		rest   string
		err    string // part of the error; empty: none
	}{
		{"v1", []string{line + "PING\r\n"}, "192.0.2.7:4242", "PING\r\n", ""},
		{"v1 in two segments", []string{line[:20], line[20:] + "PING\r\n"}, "192.0.2.7:4242", "PING\r\n", ""},
		{"v1 byte by byte", strings.Split(line, ""), "192.0.2.7:4242", "", ""},
		{"v1 byte by byte, too long", strings.Split("PROXY "+strings.Repeat("x", 110), "")[:107], "", "", "107 bytes or less"},
		{"v1 that ends early", []string{line[:20]}, "", "", "EOF"},
		{"v2 byte by byte", strings.Split(inet, ""), "192.0.2.7:4242", "", ""},
		{"v2 that ends early", []string{inet[:20]}, "", "", "EOF"},
		{"v2 of a unix socket", []string{unix + "PING\r\n"}, pipeAddr, "PING\r\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			here, there := net.Pipe()
			_ = here.SetDeadline(time.Now().Add(10 * time.Second))
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				defer there.Close()
				for _, piece := range test.pieces {
					_, _ = there.Write([]byte(piece)) // it fails if the header was refused before
				}
			}()
			addr, rest, err := readProxyHeader(here, true)
			_ = here.Close()
			<-sent
			switch {
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Errorf("%v, want %q", err, test.err)
			case test.err == "" && (err != nil || addr != test.addr || string(rest) != test.rest):
				t.Errorf("%q, %q, %v, want %q, %q", addr, rest, err, test.addr, test.rest)
			}
		})
	}
}
