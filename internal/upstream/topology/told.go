package topology

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// Told is what one node says of the servers of the cluster.
type Told struct {
	members []member
	source  string // ID of the node; "": it does not say
}

// A member is one server of the cluster.
type member struct {
	ClusterNode        // without an address if it is not known at which one clients reach the server
	where       string // the address, and perhaps the name, by which the nodes know the server
	replica     bool
	failed      bool
	joins       bool   // the nodes do not know it yet
	primary     string // ID of a replica's primary; "": it is not known
	epoch       uint64 // of its configuration; 0: it is not known
	spans       []span
}

// span is a range of slots, both ends included.
type span struct{ from, to int }

// counts reports whether a view has the server, if its address is known. Clients are not told of failed replicas.
func (m *member) counts() bool { return len(m.spans) > 0 || m.replica && !m.failed }

// idle is a primary that has no slots, but may get some. CLUSTER SLOTS does not tell of it, so its address is the one
// that the nodes use.
func (m *member) idle() ClusterNode {
	where, _, _ := strings.Cut(m.where, "@")
	colon := strings.LastIndexByte(where, ':') // an IPv6 address has no brackets
	if m.replica || m.failed || m.joins || colon <= 0 {
		return ClusterNode{}
	}
	return ClusterNode{ID: m.ID, Address: net.JoinHostPort(where[:colon], where[colon+1:])}
}

var errTold = errors.New("cluster: not an answer to CLUSTER NODES or CLUSTER SLOTS")

// ReadNodes reads an answer to CLUSTER NODES. A line is ID, address, flags, the ID of the primary, two times, the epoch
// of the configuration, the state of the link, and slots. The addresses are those that nodes use, so the members have
// none for clients.
func ReadNodes(answer string) (*Told, error) {
	t := &Told{}
	for line := range strings.Lines(answer) {
		const id, where, flags, primary, epoch, ranges = 0, 1, 2, 3, 6, 8
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", ranges+1) // there may be thousands of ranges
		if len(f) < ranges {
			continue
		}
		is := strings.Split(f[flags], ",")
		m := member{
			ClusterNode: ClusterNode{ID: f[id]}, where: f[where],
			replica: slices.Contains(is, "slave"), failed: slices.Contains(is, "fail"), joins: slices.Contains(is, "handshake"),
		}
		if slices.Contains(is, "myself") {
			t.source = m.ID
		}
		m.epoch, _ = strconv.ParseUint(f[epoch], 10, 64)
		if m.replica && f[primary] != "-" {
			m.primary = f[primary]
		}
		if len(f) > ranges {
			for word := range strings.SplitSeq(f[ranges], " ") {
				if word == "" || word[0] == '[' { // a slot on its way is there once more
					continue
				}
				s, ok := readSpan(word)
				if !ok {
					return nil, errTold
				}
				m.spans = append(m.spans, s)
			}
		}
		if len(m.spans) > hashslot.Count {
			return nil, errTold
		}
		t.members = append(t.members, m)
	}
	if len(t.members) == 0 {
		return nil, errTold
	}
	t.inherit()
	return t, nil
}

// inherit gives the slots of replicas to their primaries. A server that has been demoted says so at once (Valkey from
// 8.1 on), and a node may hear that before it hears its successor claim the slots: it lists them with the replica for a
// moment.
func (t *Told) inherit() {
	for i := range t.members {
		m := &t.members[i]
		if !m.replica || len(m.spans) == 0 {
			continue
		}
		heir := slices.IndexFunc(t.members, func(one member) bool { return one.ID == m.primary && !one.replica })
		if heir >= 0 {
			t.members[heir].spans, m.spans = append(t.members[heir].spans, m.spans...), nil
		}
	}
}

// readSpan reads "7" or "0-99".
func readSpan(word string) (span, bool) {
	first, last, many := strings.Cut(word, "-")
	if !many {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 16)
	to, err2 := strconv.ParseUint(last, 10, 16)
	return span{int(from), int(to)}, err == nil && err2 == nil && from <= to && to < hashslot.Count
}

// ReadAddresses reads at which addresses clients reach the servers, by ID, in an answer to CLUSTER SLOTS. host is the
// address at which the node was asked: a node that does not know its own address says so by an empty one.
func ReadAddresses(answer resp.Value, host string) (map[string]string, error) {
	if answer.Kind != resp.Array || answer.Null {
		return nil, errTold
	}
	all := map[string]string{}
	for _, e := range answer.Elems {
		if len(e.Elems) < 3 {
			return nil, errTold
		}
		for _, server := range e.Elems[2:] {
			if len(server.Elems) >= 3 {
				all[string(server.Elems[2].Str)] = readAddress(server, host)
			}
		}
	}
	return all, nil
}

// readAddress reads the address of a server in CLUSTER SLOTS: host, port, ID, and more since Redis 7. "": it is not
// known.
func readAddress(server resp.Value, asked string) string {
	host, port := string(server.Elems[0].Str), server.Elems[1].Int
	if host == "" { // the node does not know its own address, or prefers the one that was asked
		host, _, _ = net.SplitHostPort(asked)
	}
	if host == "" || host == "?" || port <= 0 || port > 65535 {
		return ""
	}
	return net.JoinHostPort(host, strconv.FormatInt(port, 10))
}

// View makes a view of what a node says of the servers, and of its answer to CLUSTER INFO. Servers without a known
// address are left out, with their slots.
func (t *Told) View(info string) *View {
	v := &View{
		Epoch: infoNumber(info, "cluster_current_epoch"), OK: InfoField(info, "cluster_state") == "ok",
		source: t.source, claims: map[string]uint64{}, knows: map[string]bool{}, copies: map[string]int{},
		lives: map[string]bool{},
	}
	slices.SortFunc(t.members, func(a, b member) int { return compareIDs(a.ClusterNode, b.ClusterNode) })
	for i := range t.members {
		m := &t.members[i]
		v.knows[m.ID] = true
		if m.primary != "" {
			v.copies[m.primary]++
		}
		if !m.failed && !m.joins {
			v.lives[m.ID] = true
		}
		switch {
		case !m.counts():
			if idle := m.idle(); idle.Address != "" {
				v.idle = append(v.idle, idle)
			}
		case m.Address == "":
		case m.replica:
			v.replicas = append(v.replicas, m.ClusterNode)
		default:
			v.nodes, v.claims[m.ID] = append(v.nodes, m.ClusterNode), m.epoch
			for _, s := range m.spans {
				for slot := s.from; slot <= s.to; slot++ {
					v.owner[slot] = uint16(len(v.nodes))
				}
			}
		}
	}
	return v
}
