package cli

import (
	"io"
	"sync"
	"time"
)

// messages writes lines for the user, in order, on a goroutine that lives while there are some. So a reader that
// stands still, such as a stopped terminal or a full pipe, does not hold up the work.
type messages struct {
	out io.Writer

	mu      sync.Mutex // guards the fields below
	lines   []string
	written chan struct{} // closed when all lines are written; nil: they are
}

func (m *messages) add(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines = append(m.lines, line)
	if m.written == nil {
		m.written = make(chan struct{})
		go m.write()
	}
}

func (m *messages) write() {
	for {
		m.mu.Lock()
		if len(m.lines) == 0 {
			close(m.written)
			m.written = nil
			m.mu.Unlock()
			return
		}
		line := m.lines[0]
		m.lines = m.lines[1:]
		m.mu.Unlock()
		_, _ = io.WriteString(m.out, line) // of a failure no reader can be told
	}
}

// messagesLimit is how long the end of the program waits for the reader of its messages.
const messagesLimit = time.Second

// flush waits until the lines are written, for that long at most.
func (m *messages) flush() {
	m.mu.Lock()
	written := m.written
	m.mu.Unlock()
	if written == nil {
		return
	}
	select {
	case <-written:
	case <-time.After(messagesLimit):
	}
}
