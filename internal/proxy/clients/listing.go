package clients

import (
	"bytes"
	"cmp"
	"maps"
	"runtime"
	"slices"
	"strconv"
)

// Listing is Redis's answer to CLIENT LIST: its own clients, and the connections of this proxy. The line of a client's own connection
// has facts about that client.
type Listing struct {
	Others []Line          // clients that are not this proxy's, in Redis's order
	Own    map[uint64]Line // connections of this proxy, by their ids at Redis
	Shape  *Shape          // nil: there was no line
}

// ParseListing cuts the text of a CLIENT LIST, which must not change afterwards. own reports whether a connection is one of
// this proxy's.
func ParseListing(text []byte, own func(id uint64, addr string) bool) Listing {
	l := Listing{Own: map[uint64]Line{}}
	for raw := range bytes.Lines(text) {
		line := Line(bytes.TrimRight(raw, "\r\n"))
		id := line.ID()
		if id == 0 {
			continue
		}
		if l.Shape == nil {
			l.Shape = ShapeOf(line)
		}
		if own(id, string(line.Field("addr"))) {
			l.Own[id] = line
		} else {
			l.Others = append(l.Others, line)
		}
	}
	return l
}

// Add adds the lines of another listing about the proxy's connections.
func (l *Listing) Add(other Listing) {
	maps.Copy(l.Own, other.Own)
	if l.Shape == nil {
		l.Shape = other.Shape
	}
}

// line is Redis's line about the connection that the client has for itself; nil: none.
func (l *Listing) line(c *Info) Line {
	if c.Conn == 0 {
		return nil
	}
	return l.Own[c.Conn]
}

// shape is the shape to write lines in.
func (l *Listing) shape(known *Shape) *Shape {
	switch {
	case l.Shape != nil:
		return l.Shape
	case known != nil:
		return known
	}
	return DefaultShape
}

// Text is the answer to CLIENT LIST, with a filter by type or AnyType: Redis's clients and then the proxy's, in the order of
// their ids. Redis has filtered its own already. known is the shape of lines if the listing has none. Beyond limit bytes it
// stops and returns the lines that it has.
func (l *Listing) Text(proxys []Info, only Type, known *Shape, limit int) []byte {
	slices.SortFunc(proxys, func(a, b Info) int { return cmp.Compare(a.ID, b.ID) })
	shape := l.shape(known)
	size := len(proxys) * typicalLine
	for _, line := range l.Others {
		size += len(line) + 1
	}
	b := make([]byte, 0, min(size, limit))
	for _, line := range l.Others {
		b = append(append(b, line...), '\n')
	}
	for i := range proxys {
		Yield(i)
		c := &proxys[i]
		own := l.line(c)
		if only != AnyType && c.Type(own) != only {
			continue
		}
		if len(b) > limit {
			break
		}
		b = append(c.Append(b, shape, own), '\n')
	}
	return b
}

// typicalLine is about the number of bytes of a line.
const typicalLine = 320

// Yield lets other goroutines run now and then in a loop over clients. With as many such loops as processors, event loops would wait
// for a time slice of the scheduler, 10 ms.
func Yield(i int) {
	if i%64 == 63 {
		runtime.Gosched()
	}
}

// TextOf is the answer to CLIENT LIST ID: one line for each of the ids that is a client's, in their order. Clients of the proxy
// are found with find.
func (l *Listing) TextOf(ids [][]byte, find func(id uint64) (*Info, bool), known *Shape, limit int) []byte {
	others := make(map[uint64]Line, len(l.Others))
	for _, line := range l.Others {
		others[line.ID()] = line
	}
	shape := l.shape(known)
	var b []byte
	for i, word := range ids {
		Yield(i)
		id, err := strconv.ParseUint(string(word), 10, 64)
		if err != nil || len(b) > limit {
			continue
		}
		if line, ok := others[id]; ok {
			b = append(append(b, line...), '\n')
		} else if c, ok := find(id); ok {
			b = append(c.Append(b, shape, l.line(c)), '\n')
		}
	}
	return b
}
