package redistest

import (
	"strconv"
	"strings"
)

// Move is the way of one slot from a primary to another, as redis-cli goes it: Begin, Keys, End. Between the steps
// Redis refuses commands for several keys of the slot.
type Move struct {
	Cluster  *Cluster
	Slot     int
	From, To *Server // both primaries
}

// Begin makes the slot importing and migrating.
func (m Move) Begin() {
	m.Cluster.t.Helper()
	m.To.Do(m.Cluster.t, "CLUSTER", "SETSLOT", m.Slot, "IMPORTING", m.Cluster.ID(m.From))
	m.From.Do(m.Cluster.t, "CLUSTER", "SETSLOT", m.Slot, "MIGRATING", m.Cluster.ID(m.To))
}

// Keys moves the keys of the slot, until there are none left.
func (m Move) Keys() {
	m.Cluster.t.Helper()
	for {
		keys, _ := m.From.Do(m.Cluster.t, "CLUSTER", "GETKEYSINSLOT", m.Slot, 10).([]any)
		if len(keys) == 0 {
			return
		}
		migrate := []any{"MIGRATE", m.To.place.Host, strconv.Itoa(m.To.port), "", 0, 5000, "KEYS"}
		m.From.Do(m.Cluster.t, append(migrate, keys...)...)
	}
}

// End makes the target the owner of the slot. It returns when all nodes that run know that, and have heard of its
// epoch: two nodes that get slots in turn could claim the same epoch, and take slots from each other.
func (m Move) End() {
	m.Cluster.t.Helper()
	m.Tell()
	m.Await()
}

// Tell makes the target the owner of the slot. All primaries are told: one that is not could give the slot to an
// earlier owner.
func (m Move) Tell() {
	c := m.Cluster
	c.t.Helper()
	told := []*Server{m.To, m.From}
	for _, n := range c.view(m.To) {
		node := c.at(n.addr)
		if n.replica || len(n.slots) == 0 || node == nil || node == m.To || node == m.From || !node.serves() {
			continue
		}
		told = append(told, node)
	}
	for _, node := range told {
		node.Do(c.t, "CLUSTER", "SETSLOT", m.Slot, "NODE", c.ID(m.To))
	}
}

// Await returns when all nodes that run know the new owner and its epoch. It does for all slots that were moved to the
// target before.
func (m Move) Await() {
	c := m.Cluster
	c.t.Helper()
	Eventually(c.t, startLimit, "all nodes to know the new owner of a slot", func() bool {
		epoch := c.epoch(m.To, "cluster_my_epoch")
		for _, node := range c.Nodes {
			if node.serves() && (c.ownerIn(c.view(node), m.Slot) != m.To || c.epoch(node, "cluster_current_epoch") < epoch) {
				return false
			}
		}
		return true
	})
}

// epoch is a number in CLUSTER INFO.
func (c *Cluster) epoch(node *Server, name string) int {
	text, _ := node.Do(c.t, "CLUSTER", "INFO").(string)
	_, after, _ := strings.Cut(text, name+":")
	number, _, _ := strings.Cut(after, "\r\n")
	n, _ := strconv.Atoi(number)
	return n
}
