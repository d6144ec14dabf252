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
// Its errors count entries from 1, and do not quote them, as those of ParseAddress.
func ParseAddressMap(entries []string) (AddressMap, error) {
	m := AddressMap{}
	for i, entry := range entries {
		from, to, ok := strings.Cut(entry, "=")
		if !ok || from == "" || to == "" {
			return nil, fmt.Errorf("entry %d is not announced=reachable, as in 10.0.0.5:6379=redis-a.example:6379", i+1)
		}
		fromErr, toErr := hostPort(from), hostPort(to)
		if (fromErr == nil) != (toErr == nil) {
			return nil, fmt.Errorf("entry %d: a host and port stand for a host and port, a host for a host", i+1)
		}
		if fromErr != nil && !(isHost(from) && isHost(to)) {
			return nil, fmt.Errorf("entry %d: neither two of host:port nor two hosts", i+1)
		}
		if _, twice := m[from]; twice {
			return nil, fmt.Errorf("entry %d: its announced address is listed twice", i+1)
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
