package topology

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// AddressKind of an address.
type AddressKind int

// The kinds.
const (
	KindSingle   AddressKind = iota // one server
	KindSentinel                    // Sentinels that know where the primary is
	KindCluster                     // nodes of a cluster
)

// Address says where Redis is.
type Address struct {
	Kind AddressKind

	// Servers are the server, the Sentinels, or the nodes of the cluster to ask first. There is at least one.
	Servers []Server

	// Name is the Sentinels' name for the primary.
	Name string
}

// Server is where one process listens, in the form of net.Dial.
type Server struct{ Network, Addr string }

const (
	unixPrefix     = "unix:"
	sentinelScheme = "sentinel://"
	clusterScheme  = "cluster://"
)

// AddressForms lists what Parse reads.
const AddressForms = "host:port, unix:/path, sentinel://host:port,host:port/name or cluster://host:port,host:port"

// ParseAddress reads an address. Its errors say what to write. They do not quote it: it may hold a password that
// belongs elsewhere.
//
// It knows four forms:
//
//	host:port                    one server
//	unix:/path                   one server on this machine
//	sentinel://h:p,h:p/name      the primary that Sentinels know under a name
//	cluster://h:p,h:p            a Redis Cluster, by some of its nodes
func ParseAddress(text string) (Address, error) {
	a := Address{}
	var err error
	switch {
	case text == "":
		return a, errors.New("no address")
	case strings.HasPrefix(text, unixPrefix):
		path := strings.TrimPrefix(text, unixPrefix)
		if path == "" {
			return a, errors.New("unix: has no path behind it")
		}
		a.Servers = []Server{{"unix", path}}
	case strings.HasPrefix(text, sentinelScheme):
		a.Kind = KindSentinel
		hosts, name, _ := strings.Cut(strings.TrimPrefix(text, sentinelScheme), "/")
		if a.Servers, err = servers(hosts); err != nil {
			return a, err
		}
		if a.Name = name; !goodName(name) {
			return a, errors.New("the name of the primary is missing: write sentinel://host:port,host:port/mymaster")
		}
	case strings.HasPrefix(text, clusterScheme):
		a.Kind = KindCluster
		hosts, _, slash := strings.Cut(strings.TrimPrefix(text, clusterScheme), "/")
		if slash {
			return a, errors.New("nothing comes behind the nodes of a cluster, which has no name or database")
		}
		if a.Servers, err = servers(hosts); err != nil {
			return a, err
		}
	case strings.Contains(text, "://"):
		return a, fmt.Errorf("no address of Redis, which is %s. "+
			"User, password and TLS are settings of their own", AddressForms)
	case strings.Contains(text, ","):
		return a, errors.New("several servers: write sentinel://host:port,host:port/name for Sentinels, " +
			"or cluster://host:port,host:port for a cluster")
	default:
		if _, _, err := net.SplitHostPort(text); err != nil {
			return a, fmt.Errorf("no address of Redis, which is %s", AddressForms)
		}
		if err := hostPort(text); err != nil {
			return a, err
		}
		a.Servers = []Server{{"tcp", text}}
	}
	return a, nil
}

// servers reads host:port,host:port. Its errors count from 1.
func servers(text string) ([]Server, error) {
	var all []Server
	for i, one := range strings.Split(text, ",") {
		if strings.Contains(one, "@") {
			return nil, errors.New("user and password are settings of their own, not part of the address")
		}
		if err := hostPort(one); err != nil {
			return nil, fmt.Errorf("server %d: %w", i+1, err)
		}
		if server := (Server{"tcp", one}); !slices.Contains(all, server) {
			all = append(all, server)
		} else {
			return nil, fmt.Errorf("server %d is listed twice", i+1)
		}
	}
	return all, nil
}

func hostPort(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return errors.New("it is not host:port")
	}
	if n, err := net.LookupPort("tcp", port); err != nil || n == 0 {
		return errors.New("it has no valid port")
	}
	if strings.ContainsAny(host, "/@ \t") {
		return errors.New("it has no valid host")
	}
	return nil
}

// goodName reports whether Sentinel would accept the name of a primary.
func goodName(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") == ""
}

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
