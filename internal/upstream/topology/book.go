package topology

import (
	"maps"
	"sync"
	"time"
)

// A Book has the addresses at which clients reach the servers. Only CLUSTER SLOTS tells them, by settings of the
// cluster that CLUSTER NODES does not show. But CLUSTER SLOTS repeats all servers for each range of slots, so after
// many moves it costs the node tens of milliseconds. So it is needed when a server is new or has another address among
// the nodes, and once in a while. All methods may be called from any goroutine. The zero value knows nothing.
type Book struct {
	mu    sync.Mutex
	known map[entry]place
}

// entry is a server as the nodes know it.
type entry struct{ id, where string }

func (m *member) entry() entry { return entry{m.ID, m.where} }

// place is where clients reach a server.
type place struct {
	address string    // "": CLUSTER SLOTS does not tell
	since   time.Time // of the answer
}

// bookAge is the time after which an address is asked for anew: CLUSTER NODES does not show that names are preferred to
// addresses.
const bookAge = 15 * time.Second

// Fill fills in the addresses in an answer to CLUSTER NODES. false: CLUSTER SLOTS has to be asked. It need not tell of
// a replica, which may have no data yet.
func (b *Book) Fill(t *Told, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := true
	for i := range t.members {
		m := &t.members[i]
		if !m.counts() {
			continue
		}
		p, known := b.known[m.entry()]
		m.Address = p.address
		all = all && known && now.Sub(p.since) <= bookAge && (p.address != "" || m.replica)
	}
	return all
}

// Learn takes the addresses from a node's answer to CLUSTER SLOTS, and fills them in in its answer to CLUSTER NODES. An
// address that the former does not tell stays: the server may have lost its last slot between the two answers, or may
// be a replica that is being promoted. Servers that the node does not know are forgotten.
func (b *Book) Learn(t *Told, addresses map[string]string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known == nil {
		b.known = map[entry]place{}
	}
	member := map[string]bool{}
	for i := range t.members {
		m := &t.members[i]
		member[m.ID] = true
		if !m.counts() {
			continue
		}
		if m.Address = addresses[m.ID]; m.Address == "" {
			m.Address = b.known[m.entry()].address
		}
		b.known[m.entry()] = place{m.Address, now}
	}
	maps.DeleteFunc(b.known, func(e entry, _ place) bool { return !member[e.id] })
}
