package fleet

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
)

// PipeCommand is the first argument by which this program serves as a Pipe.
const PipeCommand = "pipe"

// pipe starts this program as a server that carries bytes and reads none of them: the limit for a proxy in Go that has a
// connection to Redis for each client.
func (f *Fleet) pipe(ctx context.Context, s *Server) error {
	own, err := os.Executable()
	if err != nil {
		return fmt.Errorf("own program: %w", err)
	}
	s.Proxy, err = f.run(ctx, s.Addr, Pipe, own, PipeCommand, s.Addr, s.RedisAddr)
	return err
}

// ServePipe carries the bytes of each client of an address to a connection of its own, until accepting fails.
func ServePipe(addr, to string) error {
	ln, err := net.Listen("tcp4", addr)
	if err != nil {
		return err
	}
	for {
		client, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer client.Close()
			server, err := net.Dial("tcp4", to)
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(server, client) // the end of either side ends both
				server.Close()
			}()
			_, _ = io.Copy(client, server)
		}()
	}
}
