package upstream

import "sync"

// acceptedPasswords are the passwords that Redis has accepted, one for each user: clients of a user share lanes
// whichever password they have. The zero value has none.
type acceptedPasswords struct {
	mu     sync.Mutex
	proven map[string]string // by the user's name
}

// maxProven bounds the remembered passwords. Redis has fewer users, as a rule. A forgotten password costs a lane.
const maxProven = 4096

// Proven returns a password of a user that Redis has accepted before, if there is one.
func (p *acceptedPasswords) Proven(user string) (password string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	password, ok = p.proven[user]
	return password, ok
}

// Prove notes that Redis has accepted a user's password just now.
func (p *acceptedPasswords) Prove(user, password string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.proven) >= maxProven {
		p.proven = nil
	}
	if p.proven == nil {
		p.proven = map[string]string{}
	}
	p.proven[user] = password
}

// Disprove notes that Redis does not accept a password any more.
func (p *acceptedPasswords) Disprove(user, password string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proven[user] == password {
		delete(p.proven, user)
	}
}
