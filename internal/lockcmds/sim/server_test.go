package sim

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// server is one process of Redis. A primary with replicas keeps a log of its writes. Each replica executes a prefix of
// that log, and only a replica that is promoted executes anything else.
type server struct {
	*redis

	w     *world
	name  string
	place int // in world.servers
	shard *shard
	index int           // in the shard
	ahead time.Duration // what its clock is ahead of those of the proxies
	subs  subscriptions

	primary bool          // by its own word
	became  time.Duration // when it became the primary last
	up      bool          // the process lives
	halted  time.Duration // until then it does nothing: it was stopped, or a planned failover is near
	only    *proxy        // it is cut off from all but this proxy; nil: it is not
	kept    []func()      // what arrives when it is not cut off any more
	barred  time.Duration // it is cut off, and refuses commands from then on, as a cluster's servers do

	grants   map[grant]struct{} // that it has executed or copied
	all      map[grant]struct{} // also those of which a copy of other data has left nothing
	fences   byLock[int64]      // the largest of them
	begun    []grant            // of the script in progress
	log      []record           // as a primary
	term     int                // counts how often it has become or ceased to be a primary
	of       *server            // as a replica: its primary; nil: it has none
	copied   int                // the part of the primary's log that was there when it copied the data
	applied  int                // the part of that log that it has executed
	latest   time.Duration      // when it executes the latest record
	cutAt    time.Duration      // it gets nothing of its primary any more
	awayTill time.Duration      // until then it gets nothing
}

// shard is a primary and its replicas: all there is, or one part of a cluster.
type shard struct {
	servers []*server
	primary *server // that counts, as its peers know
}

// grant names a grant of a lock.
type grant struct {
	key   string
	fence int64
}

// record is what one script, or one command, has written. Its entries do not change.
type record struct {
	flush   bool
	keys    []string
	entries []*entry // nil: the key has gone
	grants  []grant
	at      [mostServers]time.Duration // when the replicas execute it, by their index
}

const (
	// mostServers is how many a shard has at most.
	mostServers = 3
	// never is later than any history.
	never = time.Duration(math.MaxInt64)
	// ackDelay is how long the acknowledgement of a replica is on its way.
	ackDelay = 100 * time.Microsecond
)

func (w *world) newServer(sh *shard) *server {
	s := &server{
		w: w, shard: sh, index: len(sh.servers), place: len(w.servers), name: "s" + strconv.Itoa(len(w.servers)+1), up: true, cutAt: never, barred: never,
		grants: map[grant]struct{}{}, all: map[grant]struct{}{},
	}
	s.subs = newSubscriptions(s)
	s.redis = newRedis(func() int64 { return int64(sinceUnix+w.now+w.stepped+s.ahead) / 1000 }, s.subs.publish)
	s.writing = func(key string) { w.rules.writes(s, key) }
	s.expired = func(key string) { // nothing announces that; waiters look at a lock once per lease
		for _, lock := range locks {
			if key == lock || strings.HasPrefix(key, "{"+lock+"}:") {
				*w.rules.short.of(lock) = w.now + lease
			}
		}
	}
	sh.servers = append(sh.servers, s)
	w.servers = append(w.servers, s)
	return s
}

func (w *world) newShard(replicas int) *shard {
	sh := &shard{}
	sh.primary = w.newServer(sh)
	sh.primary.primary = true
	for range replicas {
		w.newServer(sh).of = sh.primary
	}
	for _, s := range sh.servers {
		s.logs = replicas > 0
	}
	return sh
}

func (s *server) String() string { return s.name }

// hides reports whether the server is cut off from a proxy.
func (s *server) hides(p *proxy) bool { return s.only != nil && s.only != p }

// command executes a command from outside, as an operator would.
func (s *server) command(name string, args ...string) reply {
	defer s.commit()
	return s.do(name, args)
}

// commit ends a script or a command: what it has written goes to the replicas.
func (s *server) commit() {
	if !s.logs || len(s.dirty) == 0 && !s.flushed && len(s.begun) == 0 {
		return
	}
	rec := record{flush: s.flushed, grants: s.begun}
	for _, key := range s.dirty {
		if !slices.Contains(rec.keys, key) {
			rec.keys, rec.entries = append(rec.keys, key), append(rec.entries, s.keys.of(key).share())
		}
	}
	s.dirty, s.flushed, s.begun = s.dirty[:0], false, nil
	for _, r := range s.shard.servers {
		if rec.at[r.index] = never; r.of == s && r.up {
			r.latest = max(r.latest, s.w.now+s.w.latency()+s.w.upTo(s.w.lag), r.awayTill)
			rec.at[r.index] = r.latest
		}
	}
	s.log = append(s.log, rec)
}

// catchUp has a replica execute what it has by now.
func (s *server) catchUp() {
	if s.of == nil {
		return
	}
	for ; s.applied < len(s.of.log); s.applied++ {
		rec := &s.of.log[s.applied]
		if at := rec.at[s.index]; at > s.w.now || at > s.cutAt {
			return
		}
		if rec.flush {
			s.keys.clear()
		}
		for i, key := range rec.keys {
			if e := rec.entries[i]; e != nil {
				s.keys.put(key, e)
			} else {
				s.keys.remove(key)
			}
		}
		for _, g := range rec.grants {
			s.learn(g)
		}
	}
}

// learn notes that the server has a grant.
func (s *server) learn(g grant) {
	s.grants[g], s.all[g] = struct{}{}, struct{}{}
	last := s.fences.of(g.key)
	*last = max(*last, g.fence)
}

// knows reports whether the server has a grant, or had it until it ended.
func (s *server) knows(g grant) bool {
	s.catchUp()
	_, ok := s.grants[g]
	return ok
}

// had reports whether the server has a grant, or had it at any time.
func (s *server) had(g grant) bool {
	s.catchUp()
	_, ok := s.all[g]
	return ok || s.knows(g)
}

// copyOf makes the data of a server that of another one.
func (s *server) copyOf(o *server) {
	s.keys = slices.Clone(o.keys)
	for _, one := range s.keys {
		one.share()
	}
	s.grants, s.fences = maps.Clone(o.grants), o.fences
	maps.Copy(s.all, s.grants) // else it had none of them when it copies those of the next primary
}

// follow makes a server a replica that has copied all data of a primary.
func (s *server) follow(o *server) {
	s.catchUp()
	s.copyOf(o)
	s.primary, s.of, s.copied, s.applied, s.log = false, o, len(o.log), len(o.log), nil
	s.term++
	s.only, s.barred, s.cutAt, s.latest = nil, never, never, s.w.now
}

// acknowledged is how many replicas have the first n records of the log, as their primary knows.
func (s *server) acknowledged(n int) (count int64) {
	for _, r := range s.shard.servers {
		if r.of == s && r.up && r.has(n) <= s.w.now {
			count++
		}
	}
	return count
}

// has is when the primary knows that the replica has the first n records.
func (s *server) has(n int) time.Duration {
	if n <= s.copied {
		return 0
	}
	at := s.of.log[n-1].at[s.index]
	if at == never || at+ackDelay > s.cutAt {
		return never
	}
	return at + ackDelay
}

// wait is WAIT, for the first n records of the log of that term. answer is called once, unless the server dies.
func (s *server) wait(term, n, replicas int, limit time.Duration, answer func(resp.Value)) {
	w := s.w
	until := w.now + limit
	var look func()
	look = func() {
		if !s.up {
			return
		}
		if s.term != term {
			answer(errorReply("UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"))
			return
		}
		count := s.acknowledged(n)
		if int(count) >= replicas || w.now >= until {
			answer(resp.Value{Kind: resp.Integer, Int: count})
			return
		}
		next := until
		for _, r := range s.shard.servers {
			if r.of == s && r.up {
				if at := r.has(n); at > w.now {
					next = min(next, at)
				}
			}
		}
		w.in(max(next, s.halted)-w.now, nil, look)
	}
	look()
}

func errorReply(text string) resp.Value { return resp.Value{Kind: resp.SimpleError, Str: []byte(text)} }

// share is an entry for another server, or for a log; nil of a key that does not exist.
func (e *entry) share() *entry {
	if e != nil {
		e.shared = true
	}
	return e
}

// clone is a copy of an entry of its own.
func (e *entry) clone() *entry {
	c := *e
	c.shared = false
	c.hash, c.list, c.zset = slices.Clone(e.hash), slices.Clone(e.list), maps.Clone(e.zset)
	return &c
}

// promote makes a replica the primary. What it has not executed by now is lost.
func (sh *shard) promote(to *server) {
	w, old := to.w, sh.primary
	to.catchUp()
	to.primary, to.of, to.log, to.copied, to.cutAt = true, nil, nil, 0, never
	to.term++
	to.became = w.now
	sh.primary = to
	w.note("      %s is primary in place of %s", to, old)
	for _, r := range sh.servers {
		if r != to && r != old && r.up {
			r.follow(to)
		}
	}
	w.rules.promoted(old, to)
}

// candidates are the replicas that can be promoted, those with most data first.
func (sh *shard) candidates() (all []*server) {
	for _, s := range sh.servers {
		if s.up && s.of == sh.primary {
			s.catchUp()
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b *server) int { return b.applied - a.applied })
	return all
}
