package sim

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The model of Redis: keys with a time to live, hashes, lists, sorted sets and messages. It knows the commands that the
// lock scripts use, and answers as Redis does. TestModelRunsTheScriptsAsRedis and TestModelKnowsTheCommandsOfRedis
// compare it with a real one.

// reply is what a command answers.
type reply struct {
	kind replyKind
	n    int64
	text string // also of a status and of a failure
	list []reply
}

type replyKind byte

const (
	null replyKind = iota
	integer
	bulk
	status
	failure
	array
)

func integerOf(n int64) reply    { return reply{kind: integer, n: n} }
func bulkOf(s string) reply      { return reply{kind: bulk, text: s} }
func statusOf(s string) reply    { return reply{kind: status, text: s} }
func failed(err error) reply     { return reply{kind: failure, text: err.Error()} }
func arrayOf(list []reply) reply { return reply{kind: array, list: list} }

var (
	errType    = errors.New("WRONGTYPE Operation against a key holding the wrong kind of value")
	errInteger = errors.New("ERR value is not an integer or out of range")
	errSyntax  = errors.New("ERR syntax error")
)

type entry struct {
	text   string             // of a string
	hash   []string           // field, value, … in the order of their first writing
	list   []string           //
	zset   map[string]float64 //
	kind   byte               // s, h, l or z
	expire int64              // in ms since 1970; 0: never
	shared bool               // other servers, or their logs, have it as well: it does not change any more
}

type redis struct {
	micros  func() int64 // the clock of the server
	publish func(channel, message string) (receivers int64)
	keys    store
	expired func(key string) // nil: nobody asks
	writing func(key string) // is called before a key is written; nil: nobody asks
	moving  moving           // the hash slot of the script in progress

	logs    bool     // what is written is noted in the fields below
	dirty   []string // keys, some of them twice
	flushed bool     // before those
}

// moving is what happens to a hash slot.
type moving uint8

const (
	stays moving = iota
	leaves
	arrives
)

// elsewhere reports whether a script may not use a key, because it may be on the other server of a hash slot that is
// being moved: Redis asks that of each command of a script as of a client's.
func (r *redis) elsewhere(name string, args []string) bool {
	if r.moving == stays || name == "PUBLISH" || name == "SPUBLISH" || name == "TIME" {
		return false
	}
	keys := args
	if name != "DEL" && name != "EXISTS" {
		keys = args[:1]
	}
	return (r.moving == leaves || len(keys) > 1) && slices.ContainsFunc(keys, func(key string) bool { return r.get(key) == nil })
}

func newRedis(micros func() int64, publish func(channel, message string) int64) *redis {
	return &redis{micros: micros, publish: publish, keys: make(store, 0, 8)}
}

// store is the keys of a server. There are so few that looking at all of them is faster than a map.
type store []stored

type stored struct {
	key string
	*entry
}

// of returns a key, also one that has expired; nil: it does not exist.
func (s store) of(key string) *entry {
	for i := range s {
		if s[i].key == key {
			return s[i].entry
		}
	}
	return nil
}

func (s *store) put(key string, e *entry) {
	for i, one := range *s {
		if one.key == key {
			(*s)[i].entry = e
			return
		}
	}
	*s = append(*s, stored{key, e})
}

func (s *store) remove(key string) {
	*s = slices.DeleteFunc(*s, func(one stored) bool { return one.key == key })
}

func (s *store) clear() { *s = slices.Delete(*s, 0, len(*s)) }

func (r *redis) ms() int64 { return r.micros() / 1000 }

// get returns a key that exists and has not expired.
func (r *redis) get(key string) *entry {
	e := r.keys.of(key)
	if e != nil && e.expire != 0 && e.expire <= r.ms() {
		r.keys.remove(key)
		if r.expired != nil {
			r.expired(key)
		}
		return nil
	}
	return e
}

// of returns the key if it is of that kind or missing.
func (r *redis) of(kind byte, key string) (*entry, error) {
	e := r.get(key)
	if e != nil && e.kind != kind {
		return nil, errType
	}
	return e, nil
}

// make returns the key, made if need be.
func (r *redis) make(kind byte, key string) (*entry, error) {
	e, err := r.of(kind, key)
	if err != nil {
		return nil, err
	}
	if e != nil {
		return r.own(key, e), nil
	}
	e = &entry{kind: kind}
	if kind == 'z' {
		e.zset = map[string]float64{}
	}
	r.keys.put(key, e)
	return e, nil
}

// own returns a key that is about to change, as a copy of its own if need be.
func (r *redis) own(key string, e *entry) *entry {
	if e.shared {
		e = e.clone()
		r.keys.put(key, e)
	}
	return e
}

func (e *entry) field(name string) (int, bool) {
	for i := 0; i < len(e.hash); i += 2 {
		if e.hash[i] == name {
			return i, true
		}
	}
	return 0, false
}

// value is the text of a field of a hash that may be missing.
func (e *entry) value(field string) (text string, ok bool) {
	if e == nil {
		return "", false
	}
	i, ok := e.field(field)
	if !ok {
		return "", false
	}
	return e.hash[i+1], true
}

func (e *entry) set(name, value string) (added int64) {
	if i, ok := e.field(name); ok {
		e.hash[i+1] = value
		return 0
	}
	e.hash = append(e.hash, name, value)
	return 1
}

// writes are the commands after which a replica needs the key anew.
var writes = map[string]bool{
	"DEL": true, "PEXPIRE": true, "PEXPIREAT": true, "PERSIST": true, "SET": true, "HSET": true, "HDEL": true,
	"LPUSH": true, "RPUSH": true, "LREM": true, "ZADD": true, "ZREM": true,
}

// do executes one command.
func (r *redis) do(name string, a []string) reply {
	if writes[name] {
		r.write(name, a)
	}
	return r.execute(name, a)
}

// write notes what a command is about to write.
func (r *redis) write(name string, a []string) {
	written := a
	if name != "DEL" {
		written = a[:1]
	}
	if r.logs {
		r.dirty = append(r.dirty, written...)
	}
	for _, key := range written {
		if r.writing != nil {
			r.writing(key)
		}
	}
}

// execute is do without a word about what is written.
func (r *redis) execute(name string, a []string) reply {
	switch name {
	case "TIME":
		now := r.micros()
		return arrayOf([]reply{bulkOf(strconv.FormatInt(now/1e6, 10)), bulkOf(strconv.FormatInt(now%1e6, 10))})
	case "PUBLISH", "SPUBLISH":
		return integerOf(r.publish(a[0], a[1]))
	case "FLUSHALL":
		r.keys.clear()
		r.dirty, r.flushed = r.dirty[:0], r.logs
		return statusOf("OK")
	case "EXISTS", "DEL":
		var n int64
		for _, key := range a {
			if r.get(key) != nil {
				n++
				if name != "EXISTS" {
					r.keys.remove(key)
				}
			}
		}
		return integerOf(n)
	case "PTTL":
		switch e := r.get(a[0]); {
		case e == nil:
			return integerOf(-2)
		case e.expire == 0:
			return integerOf(-1)
		default:
			return integerOf(e.expire - r.ms())
		}
	case "PEXPIRE", "PEXPIREAT":
		ms, err := strconv.ParseInt(a[1], 10, 64)
		if err != nil {
			return failed(errInteger)
		}
		if name == "PEXPIREAT" {
			ms -= r.ms()
		}
		e := r.get(a[0])
		if e == nil {
			return integerOf(0)
		}
		if ms <= 0 {
			r.keys.remove(a[0])
		} else {
			r.own(a[0], e).expire = r.ms() + ms
		}
		return integerOf(1)
	case "PERSIST": // of a deliberate bug
		e := r.get(a[0])
		if e == nil || e.expire == 0 {
			return integerOf(0)
		}
		r.own(a[0], e).expire = 0
		return integerOf(1)
	}
	switch name[0] {
	case 'H':
		return r.hash(name, a)
	case 'L', 'R':
		return r.list(name, a)
	case 'Z':
		return r.zset(name, a)
	}
	return r.text(name, a)
}

func (r *redis) text(name string, a []string) reply {
	switch name {
	case "GET":
		e, err := r.of('s', a[0])
		if err != nil {
			return failed(err)
		}
		if e == nil {
			return reply{}
		}
		return bulkOf(e.text)
	case "SET":
		was := r.get(a[0])
		e := &entry{kind: 's', text: a[1]}
		old := false
		for i := 2; i < len(a); i++ {
			switch strings.ToUpper(a[i]) {
			case "GET":
				old = true
			case "KEEPTTL":
				if was != nil {
					e.expire = was.expire
				}
			case "PX":
				i++
				ms, err := strconv.ParseInt(a[i], 10, 64)
				if err != nil {
					return failed(errInteger)
				}
				e.expire = r.ms() + ms
			case "PXAT":
				i++
				at, err := strconv.ParseInt(a[i], 10, 64)
				if err != nil {
					return failed(errInteger)
				}
				e.expire = at
			default:
				return failed(errSyntax)
			}
		}
		if old && was != nil && was.kind != 's' {
			return failed(errType)
		}
		r.keys.put(a[0], e)
		switch {
		case !old:
			return statusOf("OK")
		case was == nil:
			return reply{}
		default:
			return bulkOf(was.text)
		}
	}
	return failed(errors.New("ERR the model does not know " + name))
}

func (r *redis) hash(name string, a []string) reply {
	e, err := r.of('h', a[0])
	if err != nil {
		return failed(err)
	}
	switch name {
	case "HGET", "HMGET":
		values := make([]reply, len(a)-1)
		for i, field := range a[1:] {
			if text, ok := e.value(field); ok {
				values[i] = bulkOf(text)
			}
		}
		if name == "HGET" {
			return values[0]
		}
		return arrayOf(values)
	case "HEXISTS":
		if e != nil {
			if _, ok := e.field(a[1]); ok {
				return integerOf(1)
			}
		}
		return integerOf(0)
	case "HLEN":
		if e == nil {
			return integerOf(0)
		}
		return integerOf(int64(len(e.hash) / 2))
	case "HGETALL", "HKEYS", "HSCAN": // the scan of a small hash has one page
		values := []reply{}
		for i := 0; e != nil && i < len(e.hash); i++ {
			if name != "HKEYS" || i%2 == 0 {
				values = append(values, bulkOf(e.hash[i]))
			}
		}
		if name == "HSCAN" {
			return arrayOf([]reply{bulkOf("0"), arrayOf(values)})
		}
		return arrayOf(values)
	case "HRANDFIELD": // the last ones
		values := []reply{}
		count, _ := strconv.Atoi(a[1])
		for i := 0; e != nil && i < min(count, len(e.hash)/2); i++ {
			values = append(values, bulkOf(e.hash[len(e.hash)-2*i-2]))
		}
		return arrayOf(values)
	case "HDEL":
		var n int64
		for _, field := range a[1:] {
			if e == nil {
				break
			}
			if i, ok := e.field(field); ok {
				e = r.own(a[0], e)
				e.hash = slices.Delete(e.hash, i, i+2)
				n++
			}
		}
		if e != nil && len(e.hash) == 0 {
			r.keys.remove(a[0])
		}
		return integerOf(n)
	case "HSET":
		e, _ = r.make('h', a[0])
		var n int64
		for i := 1; i+1 < len(a); i += 2 {
			n += e.set(a[i], a[i+1])
		}
		return integerOf(n)
	}
	return failed(errors.New("ERR the model does not know " + name))
}

func (r *redis) list(name string, a []string) reply {
	e, err := r.of('l', a[0])
	if err != nil {
		return failed(err)
	}
	var list []string
	if e != nil {
		list = e.list
	}
	switch name {
	case "LLEN":
		return integerOf(int64(len(list)))
	case "LINDEX":
		i, _ := strconv.Atoi(a[1])
		if i < 0 {
			i += len(list)
		}
		if i < 0 || i >= len(list) {
			return reply{}
		}
		return bulkOf(list[i])
	case "LRANGE":
		from, _ := strconv.Atoi(a[1])
		to, _ := strconv.Atoi(a[2])
		if from < 0 {
			from = max(0, from+len(list))
		}
		if to < 0 {
			to += len(list)
		}
		values := []reply{}
		for i := from; i <= to && i < len(list); i++ {
			values = append(values, bulkOf(list[i]))
		}
		return arrayOf(values)
	case "RPUSH", "LPUSH":
		e, _ = r.make('l', a[0])
		for _, v := range a[1:] {
			if name == "RPUSH" {
				e.list = append(e.list, v)
			} else {
				e.list = append([]string{v}, e.list...) // who has the list before keeps it
			}
		}
		return integerOf(int64(len(e.list)))
	case "LREM":
		count, _ := strconv.Atoi(a[1])
		var n int64
		kept := make([]string, 0, len(list))
		for _, v := range list {
			if v == a[2] && (count == 0 || int(n) < count) {
				n++
				continue
			}
			kept = append(kept, v)
		}
		switch {
		case len(kept) == 0:
			r.keys.remove(a[0])
		case n > 0:
			r.own(a[0], e).list = kept
		}
		return integerOf(n)
	}
	return failed(errors.New("ERR the model does not know " + name))
}

func (r *redis) zset(name string, a []string) reply {
	e, err := r.of('z', a[0])
	if err != nil {
		return failed(err)
	}
	switch name {
	case "ZSCORE":
		if e != nil {
			if score, ok := e.zset[a[1]]; ok {
				return bulkOf(showScore(score))
			}
		}
		return reply{}
	case "ZMSCORE":
		scores := []reply{}
		for _, member := range a[1:] {
			scores = append(scores, r.zset("ZSCORE", []string{a[0], member}))
		}
		return arrayOf(scores)
	case "ZRANGEBYLEX": // of members with one prefix, in a zset whose scores are the same
		members := []reply{}
		if e != nil {
			for _, member := range slices.Sorted(maps.Keys(e.zset)) {
				if member >= a[1][1:] && member < a[2][1:] {
					members = append(members, bulkOf(member))
				}
			}
		}
		return arrayOf(members)
	case "ZCARD":
		if e == nil {
			return integerOf(0)
		}
		return integerOf(int64(len(e.zset)))
	case "ZREM":
		var n int64
		for _, member := range a[1:] {
			if e != nil {
				if _, ok := e.zset[member]; ok {
					e = r.own(a[0], e)
					delete(e.zset, member)
					n++
				}
			}
		}
		if e != nil && len(e.zset) == 0 {
			r.keys.remove(a[0])
		}
		return integerOf(n)
	case "ZADD":
		return r.zadd(e, a)
	case "ZRANGE":
		return zrange(e, a[1:])
	case "ZCOUNT":
		return integerOf(int64(len(zrange(e, []string{a[1], a[2], "BYSCORE"}).list)))
	case "ZRANGEBYSCORE":
		return zrange(e, append([]string{a[1], a[2], "BYSCORE"}, a[3:]...))
	}
	return failed(errors.New("ERR the model does not know " + name))
}

func (r *redis) zadd(e *entry, a []string) reply {
	key, a := a[0], a[1:]
	xx, nx, lt := false, false, false
options:
	for ; len(a) > 0; a = a[1:] {
		switch strings.ToUpper(a[0]) {
		case "XX":
			xx = true
		case "NX":
			nx = true
		case "LT":
			lt = true
		default:
			break options
		}
	}
	var added int64
	for ; len(a) > 1; a = a[2:] {
		score, err := strconv.ParseFloat(a[0], 64)
		if err != nil {
			return failed(errors.New("ERR value is not a valid float"))
		}
		var was float64
		exists := false
		if e != nil {
			was, exists = e.zset[a[1]]
		}
		switch {
		case !exists && xx, exists && nx, exists && lt && score >= was:
			continue
		case !exists:
			added++
		}
		e, _ = r.make('z', key)
		e.zset[a[1]] = score
	}
	return integerOf(added)
}

// zrange knows ranges by index and by score, with scores or without. The offset of a limit is 0.
func zrange(e *entry, a []string) reply {
	values := []reply{}
	if e == nil {
		return arrayOf(values)
	}
	type member struct {
		name  string
		score float64
	}
	all := make([]member, 0, len(e.zset))
	for name, score := range e.zset {
		all = append(all, member{name, score})
	}
	slices.SortFunc(all, func(a, b member) int { return cmp.Or(cmp.Compare(a.score, b.score), strings.Compare(a.name, b.name)) })
	byScore, withScores, limit := false, false, len(all)
	for i, option := range a[2:] {
		byScore = byScore || strings.EqualFold(option, "BYSCORE")
		withScores = withScores || strings.EqualFold(option, "WITHSCORES")
		if strings.EqualFold(option, "LIMIT") {
			limit, _ = strconv.Atoi(a[i+4])
		}
	}
	if byScore {
		from, above := strings.CutPrefix(a[0], "(")
		least, most := scoreLimit(from), scoreLimit(a[1])
		all = slices.DeleteFunc(all, func(m member) bool { return m.score < least || above && m.score == least || m.score > most })
		all = all[:min(limit, len(all))]
	} else {
		from, _ := strconv.Atoi(a[0])
		to, _ := strconv.Atoi(a[1])
		if from < 0 {
			from = max(0, from+len(all))
		}
		if to < 0 {
			to += len(all)
		}
		all = all[min(from, len(all)):max(min(from, len(all)), min(to+1, len(all)))]
	}
	for _, m := range all {
		values = append(values, bulkOf(m.name))
		if withScores {
			values = append(values, bulkOf(showScore(m.score)))
		}
	}
	return arrayOf(values)
}

func scoreLimit(text string) float64 {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return n
	}
	if strings.HasPrefix(text, "-") {
		return math.Inf(-1)
	}
	return math.Inf(1)
}

func showScore(score float64) string {
	if score == math.Trunc(score) && math.Abs(score) < 1e17 {
		return strconv.FormatFloat(score, 'f', 0, 64)
	}
	return strconv.FormatFloat(score, 'g', 17, 64)
}
