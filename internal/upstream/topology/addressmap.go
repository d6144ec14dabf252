package topology

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// AddressMap says where announced servers are reached: behind NAT, Sentinels and clusters announce addresses of another
// network. The key is the announced host:port, or a host alone, which stands for all its ports. The zero value changes
// nothing.
type AddressMap map[string]string

// ParseAddressMap reads entries of the form announced=reachable: two of host:port, or two hosts.
func ParseAddressMap(entries []string) (AddressMap, error) {
	m := AddressMap{}
	for _, entry := range entries {
		from, to, ok := strings.Cut(entry, "=")
		if !ok || from == "" || to == "" {
			return nil, fmt.Errorf("%q is not announced=reachable, as in 10.0.0.5:6379=redis-a.example:6379", entry)
		}
		fromErr, toErr := hostPort(from), hostPort(to)
		if (fromErr == nil) != (toErr == nil) {
			return nil, fmt.Errorf("%q: a host and port stand for a host and port, a host for a host", entry)
		}
		if fromErr != nil && !(isHost(from) && isHost(to)) {
			return nil, fmt.Errorf("%q: neither two of host:port nor two hosts", entry)
		}
		if _, twice := m[from]; twice {
			return nil, fmt.Errorf("%q: %s is listed twice", entry, from)
		}
		m[from] = to
	}
	return m, nil
}

func isHost(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil || !strings.ContainsAny(text, ":/@ ")
}

// Of returns where an announced host:port is reached.
func (m AddressMap) Of(announced string) string {
	if to, ok := m[announced]; ok {
		return to
	}
	host, port, err := net.SplitHostPort(announced)
	if err != nil {
		return announced
	}
	if to, ok := m[host]; ok {
		return net.JoinHostPort(to, port)
	}
	return announced
}
