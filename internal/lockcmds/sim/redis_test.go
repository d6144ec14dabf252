package sim

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The model of Redis: keys with a time to live, hashes, lists, sorted sets and messages. It knows the commands that the lock scripts use,
// and answers as Redis does. TestModelAnswersAsRedis compares it with a real one.

// status is a simple string.
type status string

// Replies of the model are int64, string, nil, []any, status or an error.
type reply any

var (
	errType    = errors.New("WRONGTYPE Operation against a key holding the wrong kind of value")
	errInteger = errors.New("ERR value is not an integer or out of range")
	errHashInt = errors.New("ERR hash value is not an integer")
	errSyntax  = errors.New("ERR syntax error")
)

type entry struct {
	text   string             // of a string
	hash   []string           // field, value, … in the order of their first writing
	list   []string           //
	zset   map[string]float64 //
	kind   byte               // s, h, l or z
	expire int64              // in ms since 1970; 0: never
}

type redis struct {
	micros  func() int64 // the clock of the server
	publish func(channel, message string) (receivers int64)
	keys    map[string]*entry
	expired func(key string) // nil: nobody asks
	writing func(key string) // is called before a key is written; nil: nobody asks

	logs    bool     // what is written is noted in the fields below
	dirty   []string // keys, some of them twice
	flushed bool     // before those
}

func newRedis(micros func() int64, publish func(channel, message string) int64) *redis {
	return &redis{micros: micros, publish: publish, keys: map[string]*entry{}}
}

func (r *redis) ms() int64 { return r.micros() / 1000 }

// get returns a key that exists and has not expired.
func (r *redis) get(key string) *entry {
	e := r.keys[key]
	if e != nil && e.expire != 0 && e.expire <= r.ms() {
		delete(r.keys, key)
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
	if e == nil && err == nil {
		e = &entry{kind: kind}
		if kind == 'z' {
			e.zset = map[string]float64{}
		}
		r.keys[key] = e
	}
	return e, err
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
	"DEL": true, "UNLINK": true, "PEXPIRE": true, "PERSIST": true, "SET": true, "HSET": true, "HDEL": true, "HINCRBY": true, "LPUSH": true,
	"RPUSH": true, "LPOP": true, "LREM": true, "ZADD": true, "ZREM": true,
}

// do executes one command.
func (r *redis) do(name string, a []string) reply {
	if (r.logs || r.writing != nil) && writes[name] {
		written := a
		if name != "DEL" && name != "UNLINK" {
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
	switch name {
	case "TIME":
		now := r.micros()
		return []any{strconv.FormatInt(now/1e6, 10), strconv.FormatInt(now%1e6, 10)}
	case "PUBLISH", "SPUBLISH":
		return r.publish(a[0], a[1])
	case "FLUSHALL":
		clear(r.keys)
		r.dirty, r.flushed = r.dirty[:0], r.logs
		return status("OK")
	case "EXISTS", "DEL", "UNLINK":
		var n int64
		for _, key := range a {
			if r.get(key) != nil {
				n++
				if name != "EXISTS" {
					delete(r.keys, key)
				}
			}
		}
		return n
	case "PTTL":
		switch e := r.get(a[0]); {
		case e == nil:
			return int64(-2)
		case e.expire == 0:
			return int64(-1)
		default:
			return e.expire - r.ms()
		}
	case "PEXPIRE":
		ms, err := strconv.ParseInt(a[1], 10, 64)
		if err != nil {
			return errInteger
		}
		e := r.get(a[0])
		if e == nil {
			return int64(0)
		}
		if ms <= 0 {
			delete(r.keys, a[0])
		} else {
			e.expire = r.ms() + ms
		}
		return int64(1)
	case "PERSIST": // of a deliberate bug
		e := r.get(a[0])
		if e == nil || e.expire == 0 {
			return int64(0)
		}
		e.expire = 0
		return int64(1)
	case "TYPE":
		e := r.get(a[0])
		if e == nil {
			return status("none")
		}
		return status(map[byte]string{'s': "string", 'h': "hash", 'l': "list", 'z': "zset"}[e.kind])
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
			return err
		}
		if e == nil {
			return nil
		}
		return e.text
	case "SET":
		was := r.get(a[0])
		e := &entry{kind: 's', text: a[1]}
		old := false
		for i := 2; i < len(a); i++ {
			switch strings.ToUpper(a[i]) {
			case "GET":
				old = true
			case "PX":
				i++
				ms, err := strconv.ParseInt(a[i], 10, 64)
				if err != nil {
					return errInteger
				}
				e.expire = r.ms() + ms
			default:
				return errSyntax
			}
		}
		if old && was != nil && was.kind != 's' {
			return errType
		}
		r.keys[a[0]] = e
		switch {
		case !old:
			return status("OK")
		case was == nil:
			return nil
		default:
			return was.text
		}
	}
	return errors.New("ERR the model does not know " + name)
}

func (r *redis) hash(name string, a []string) reply {
	e, err := r.of('h', a[0])
	if err != nil {
		return err
	}
	switch name {
	case "HGET", "HMGET":
		values := make([]any, len(a)-1)
		for i, field := range a[1:] {
			if text, ok := e.value(field); ok {
				values[i] = text
			}
		}
		if name == "HGET" {
			return values[0]
		}
		return values
	case "HEXISTS":
		if e != nil {
			if _, ok := e.field(a[1]); ok {
				return int64(1)
			}
		}
		return int64(0)
	case "HLEN":
		if e == nil {
			return int64(0)
		}
		return int64(len(e.hash) / 2)
	case "HGETALL", "HKEYS":
		values := []any{}
		for i := 0; e != nil && i < len(e.hash); i++ {
			if name == "HGETALL" || i%2 == 0 {
				values = append(values, e.hash[i])
			}
		}
		return values
	case "HDEL":
		var n int64
		for _, field := range a[1:] {
			if e == nil {
				break
			}
			if i, ok := e.field(field); ok {
				e.hash = slices.Delete(e.hash, i, i+2)
				n++
			}
		}
		if e != nil && len(e.hash) == 0 {
			delete(r.keys, a[0])
		}
		return n
	case "HSET":
		e, _ = r.make('h', a[0])
		var n int64
		for i := 1; i+1 < len(a); i += 2 {
			n += e.set(a[i], a[i+1])
		}
		return n
	case "HINCRBY":
		by, err := strconv.ParseInt(a[2], 10, 64)
		if err != nil {
			return errInteger
		}
		var n int64
		if e != nil {
			if i, ok := e.field(a[1]); ok {
				if n, err = strconv.ParseInt(e.hash[i+1], 10, 64); err != nil {
					return errHashInt
				}
			}
		}
		e, _ = r.make('h', a[0])
		e.set(a[1], strconv.FormatInt(n+by, 10))
		return n + by
	}
	return errors.New("ERR the model does not know " + name)
}

func (r *redis) list(name string, a []string) reply {
	e, err := r.of('l', a[0])
	if err != nil {
		return err
	}
	var list []string
	if e != nil {
		list = e.list
	}
	switch name {
	case "LLEN":
		return int64(len(list))
	case "LINDEX":
		i, _ := strconv.Atoi(a[1])
		if i < 0 {
			i += len(list)
		}
		if i < 0 || i >= len(list) {
			return nil
		}
		return list[i]
	case "LRANGE":
		from, _ := strconv.Atoi(a[1])
		to, _ := strconv.Atoi(a[2])
		if from < 0 {
			from = max(0, from+len(list))
		}
		if to < 0 {
			to += len(list)
		}
		values := []any{}
		for i := from; i <= to && i < len(list); i++ {
			values = append(values, list[i])
		}
		return values
	case "RPUSH", "LPUSH":
		e, _ = r.make('l', a[0])
		for _, v := range a[1:] {
			if name == "RPUSH" {
				e.list = append(e.list, v)
			} else {
				e.list = append([]string{v}, e.list...) // who has the list before keeps it
			}
		}
		return int64(len(e.list))
	case "LPOP":
		if len(list) == 0 {
			return nil
		}
		first := list[0]
		r.setList(a[0], list[1:])
		return first
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
		if n > 0 {
			r.setList(a[0], kept)
		}
		return n
	}
	return errors.New("ERR the model does not know " + name)
}

func (r *redis) setList(key string, list []string) {
	if len(list) == 0 {
		delete(r.keys, key)
		return
	}
	r.keys[key].list = list
}

func (r *redis) zset(name string, a []string) reply {
	e, err := r.of('z', a[0])
	if err != nil {
		return err
	}
	switch name {
	case "ZSCORE":
		if e != nil {
			if score, ok := e.zset[a[1]]; ok {
				return showScore(score)
			}
		}
		return nil
	case "ZCARD":
		if e == nil {
			return int64(0)
		}
		return int64(len(e.zset))
	case "ZREM":
		var n int64
		for _, member := range a[1:] {
			if e != nil {
				if _, ok := e.zset[member]; ok {
					delete(e.zset, member)
					n++
				}
			}
		}
		if e != nil && len(e.zset) == 0 {
			delete(r.keys, a[0])
		}
		return n
	case "ZADD":
		return r.zadd(e, a)
	case "ZRANGE":
		return zrange(e, a[1:])
	}
	return errors.New("ERR the model does not know " + name)
}

func (r *redis) zadd(e *entry, a []string) reply {
	key, a := a[0], a[1:]
	xx, nx, lt, gt := false, false, false, false
options:
	for ; len(a) > 0; a = a[1:] {
		switch strings.ToUpper(a[0]) {
		case "XX":
			xx = true
		case "NX":
			nx = true
		case "LT":
			lt = true
		case "GT":
			gt = true
		default:
			break options
		}
	}
	var added int64
	for ; len(a) > 1; a = a[2:] {
		score, err := strconv.ParseFloat(a[0], 64)
		if err != nil {
			return errors.New("ERR value is not a valid float")
		}
		var was float64
		exists := false
		if e != nil {
			was, exists = e.zset[a[1]]
		}
		switch {
		case !exists && xx, exists && nx, exists && lt && score >= was, exists && gt && score <= was:
			continue
		case !exists:
			added++
		}
		e, _ = r.make('z', key)
		e.zset[a[1]] = score
	}
	return added
}

// zrange knows whole ranges by index and by score, with scores or without.
func zrange(e *entry, a []string) reply {
	values := []any{}
	if e == nil {
		return values
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
	byScore, withScores := false, false
	for _, option := range a[2:] {
		byScore = byScore || strings.EqualFold(option, "BYSCORE")
		withScores = withScores || strings.EqualFold(option, "WITHSCORES")
	}
	if byScore {
		least, most := scoreLimit(a[0]), scoreLimit(a[1])
		all = slices.DeleteFunc(all, func(m member) bool { return m.score < least || m.score > most })
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
		values = append(values, m.name)
		if withScores {
			values = append(values, showScore(m.score))
		}
	}
	return values
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
