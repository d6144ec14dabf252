package locks

import "fmt"

// node is a party that the network connects.
type node int

const (
	workers node = iota
	proxy1
	proxy2
	store // Redis; where there are several servers, the first of them
)

func (n node) String() string {
	if n > store {
		return fmt.Sprint("server ", int(n-store))
	}
	return [...]string{"workers", "proxy 1", "proxy 2", "redis"}[n]
}

// pairs are the connections that there are, client side first.
var pairs = [][2]node{{workers, proxy1}, {workers, proxy2}, {proxy1, store}, {proxy2, store}}

// network carries the bytes between the parties and can be made to fail.
type network interface {
	// cut loses silently what one sends to the other, only in this direction, until heal.
	cut(from, to node)
	heal()
}

var (
	_ network = relays(nil)
	_ network = (*namespaces)(nil)
)
