package blackbox

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// A script of testdata has cases, each behind "== title". A step is a line; one that begins with a blank goes on.
//
//	a: SET k v | GET k ; PING   client a sends two commands in one go, and another one behind their replies
//	a: SUBSCRIBE x y < 2        ... and reads two frames, or up to a frame with this word
//	a: LOCK k => : ; GET k => "v" ; BLPOP l 1 => nil
//	a> BLPOP l 0                a sends a command and reads nothing
//	a< 3, a< word, a< end       a reads frames; up to one with the word; up to the end of the connection
//	a< => : ; +PONG             a reads these replies
//	a~ LOCK k => :              a sends a command until it is answered so, or with < by a frame that has a word
//	a! GET k | GET              another client sends this, whole and in pieces, ends its side and reads up to the end
//	a. close, half-close, reset, sync, id   sync: nothing else has come. id: its CLIENT ID is $a from now on
//	redis: CONFIG SET x y       the server itself is asked; with => until it answers so, as Go prints it
//	info: lock_waiters => 1     until INFO lockproxy says so, or what a REGEXP matches
//	hide: REGEXP => word        in all frames from now on
//	each X: SET k v || GET k    the case is played for each of these in the place of [X]; with: has them, too
//
// Without =>, all that the clients get must be what Redis says, in both protocols, to plain clients and over TLS. Such
// cases stand in front of those with locks, behind which the proxy is subscribed. With =>, the case is played through
// the proxy alone, and a reply begins so: "v" is a whole bulk string, ":1" a whole number, nil a null of RESP2, end the
// end of the connection, ? anything. $F is any number for the first time, and then that one, also in commands.
//
// In braces behind a title: the only protocol, the only version of Redis, or "plain": it takes time, and is not played
// over TLS. {x*100} is a hundred times x, raw "…" are bytes as they are. Steps in front of the first case are the start
// of each. "start:" has arguments of Redis, "with:" settings of the proxy.
type script struct {
	title    string
	only     string // in braces; empty: nothing
	with     string
	steps    []string
	each     [][]string // names, each with its values behind it
	expected bool       // has =>
}

// variants are a case for each of its values.
func (s *script) variants() []*script {
	if len(s.each) == 0 {
		return []*script{s}
	}
	var all []*script
	name, values := s.each[0][0], s.each[0][1:]
	for _, value := range values {
		one := *s
		one.title, one.with = s.title+", "+value, strings.ReplaceAll(s.with, name, value)
		one.each, one.steps = s.each[1:], nil
		for _, step := range s.steps {
			one.steps = append(one.steps, strings.ReplaceAll(step, name, value))
		}
		all = append(all, one.variants()...)
	}
	return all
}

func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.script")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".script"), func(t *testing.T) {
			t.Parallel()
			start, scripts := read(t, file)
			b := newBench(t, start...)
			proxies := map[string]*proxytest.Proxy{"": b.Proxy}
			for _, s := range scripts {
				t.Run(s.title, func(t *testing.T) {
					if version := b.Redis.Do(t, "INFO", "server").(string); strings.Contains(s.only, ".") && !strings.Contains(version, "redis_version:"+s.only) {
						t.Skip("other versions of Redis answer otherwise")
					}
					srv := proxies[s.with]
					if srv == nil {
						srv = proxytest.Start(b.t, b.Redis, proxytest.WithTLS, func(o *proxy.Options) { set(t, o, s.with) })
						proxies[s.with] = srv
					}
					s.play(t, b, srv)
				})
			}
		})
	}
}

// read returns the arguments of Redis and the cases of a file.
func read(t *testing.T, file string) (start []string, all []*script) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first := script{}
	now := &first
	for line := range strings.Lines(strings.NewReplacer("\n\t", " ", "\n ", " ").Replace(string(text))) {
		line = strings.TrimSpace(line)
		what, rest, _ := strings.Cut(line, " ")
		switch what {
		case "", "#":
			continue
		case "==":
			title, only, _ := strings.Cut(rest, " {")
			now = &script{title: title, only: strings.TrimSuffix(only, "}"), with: first.with, steps: slices.Clip(first.steps)}
			all = append(all, now)
		case "each":
			name, values, _ := strings.Cut(rest, ": ")
			now.each = append(now.each, append([]string{"[" + name + "]"}, strings.Split(values, " || ")...))
		case "start:":
			start = strings.Fields(rest)
		case "with:":
			now.with = rest
		default:
			now.steps = append(now.steps, line)
			now.expected = now.expected || what != "redis:" && what != "hide:" && strings.Contains(line, " => ")
		}
	}
	var variants []*script
	for _, s := range all {
		variants = append(variants, s.variants()...)
	}
	return start, variants
}

// settings are those of the proxy that scripts change.
func set(t *testing.T, o *proxy.Options, with string) {
	for pair := range strings.FieldsSeq(with) {
		name, value, _ := strings.Cut(pair, "=")
		n, _ := strconv.Atoi(value)
		d, _ := time.ParseDuration(value)
		switch name {
		case "client-auth":
			o.ClientAuth = value
		case "user":
			o.Upstream.User = value
		case "password":
			o.Upstream.Password = value
		case "lock.reentry":
			o.Locks.Reentry = proxy.Reentry(value)
		case "lock.lease":
			o.Locks.Lease = d
		case "max-pins":
			o.Upstream.Pins.Max, o.Upstream.Pins.Wait = n, 50*time.Millisecond
		case "max-waiters":
			o.Locks.MaxWaiters = n
		case "max-engines":
			o.MaxEngines = n
		default:
			t.Fatalf("with: %s", pair)
		}
	}
}

// play plays a case wherever it is to be played.
func (s *script) play(t *testing.T, b *bench, srv *proxytest.Proxy) {
	for proto := 2; proto <= 3; proto++ {
		if s.expected && s.only != "RESP3" && proto == 3 || strings.HasPrefix(s.only, "RESP") && !strings.HasSuffix(s.only, strconv.Itoa(proto)) {
			continue
		}
		all := func(side *proxytest.Side) {
			inline := proto == 2 && side.Title == "proxy" || proto == 3 && side.Title == "proxy, TLS"
			p := &play{t: t, srv: srv, side: side, proto: proto, inline: inline, clients: map[string]*proxytest.Client{}, ids: map[string]string{}}
			for _, step := range s.steps {
				p.step(step)
			}
		}
		if !s.expected {
			b.compare(t, srv, all)
			continue
		}
		for _, side := range []string{"proxy", "proxy, TLS"} {
			if s.only == "plain" && side != "proxy" {
				continue
			}
			proxytest.WaitFor(t, "the clients of the last run to be gone", func() bool { return srv.Stats().Clients == 0 })
			for _, line := range b.run(t, side, b.sides(srv)[side], all) {
				if strings.HasSuffix(line, proxytest.ErrTimeout.Error()) {
					t.Error(line)
				}
			}
		}
	}
}

// play is one run of a case.
type play struct {
	t       *testing.T
	srv     *proxytest.Proxy
	side    *proxytest.Side
	proto   int
	inline  bool // commands are lines, not arrays
	clients map[string]*proxytest.Client
	ids     map[string]string // as CLIENT ID says, by client
}

var (
	stepForm = regexp.MustCompile(`^(\w+)([:><~!.]) ?(.*)$`)
	manyForm = regexp.MustCompile(`\{([^{}]+?)\*(\d+)\}`)
	idForm   = regexp.MustCompile(`\$[a-zA-Z]\b`)
)

func (p *play) step(line string) {
	p.t.Helper()
	m := stepForm.FindStringSubmatch(line)
	if m == nil {
		p.t.Fatalf("no step: %s", line)
	}
	who, verb, rest := m[1], m[2], m[3]
	if command, want, _ := strings.Cut(rest, " => "); who == "redis" || who == "info" || who == "hide" {
		switch who {
		case "hide":
			p.side.Hide(command, want)
		case "info":
			c, form := p.srv.Dial(p.t), regexp.MustCompile("\n"+command+":("+want+")\r\n")
			defer func() { _ = c.Conn.Close() }()
			if password := p.srv.Options.Upstream.Password; password != "" {
				c.Quiet("AUTH", password)
			}
			proxytest.WaitFor(p.t, line, func() bool { return form.MatchString(c.Ask("INFO lockproxy")) })
		default:
			var words []any
			for word := range strings.FieldsSeq(command) {
				words = append(words, word)
			}
			proxytest.WaitFor(p.t, line, func() bool {
				got := fmt.Sprint(p.side.Redis.Do(p.t, words...))
				return want == "" || got == want
			})
		}
		return
	}
	if who == "blocked" {
		n, _ := strconv.Atoi(rest)
		p.side.AwaitBlocked(n)
		return
	}
	if verb == "!" {
		p.whole(rest)
		return
	}
	switch c := p.client(who); verb {
	case ":":
		for part := range strings.SplitSeq(rest, " ; ") {
			p.exchange(c, part)
		}
	case ">":
		for command := range strings.SplitSeq(rest, " | ") {
			c.Raw(p.bytes(command))
		}
	case "<":
		p.expect(c, rest)
	case "~":
		command, want, _ := strings.Cut(rest, " => ")
		command, word, _ := strings.Cut(command, " < ")
		proxytest.WaitFor(p.t, line, func() bool {
			for one := range strings.SplitSeq(command, " | ") {
				c.Raw(p.bytes(one))
			}
			got := c.Next()
			return strings.HasPrefix(got, p.reply(want)) && strings.Contains(got, p.reply(word))
		})
	case ".":
		switch rest {
		case "close":
			_ = c.Conn.Close()
			delete(p.clients, who)
		case "half-close":
			c.HalfClose()
		case "reset":
			_ = c.Socket().SetLinger(0)
			_ = c.Socket().Close()
			delete(p.clients, who)
		case "sync":
			c.Sync()
		case "id":
			p.ids["$"+who] = c.ID()
		default:
			p.t.Fatal(line)
		}
	}
}

// exchange has a client send commands in one go, and read the replies.
func (p *play) exchange(c *proxytest.Client, part string) {
	p.t.Helper()
	part, frames, counted := strings.Cut(part, " < ")
	commands := strings.Split(part, " | ")
	var raw strings.Builder
	for _, command := range commands {
		command, _, _ = strings.Cut(command, " => ")
		raw.WriteString(p.bytes(command))
	}
	c.Raw(raw.String())
	if counted {
		p.expect(c, frames)
		return
	}
	for _, command := range commands {
		if command, want, known := strings.Cut(command, " => "); known {
			c.Label = command
			p.gets(c, want)
		} else {
			c.Expect(1)
		}
	}
}

func (p *play) expect(c *proxytest.Client, frames string) {
	p.t.Helper()
	switch n, err := strconv.Atoi(frames); {
	case err == nil:
		c.Expect(n)
	case frames == "end":
		c.End()
	case strings.HasPrefix(frames, "=> "):
		for want := range strings.SplitSeq(frames[len("=> "):], " ; ") {
			p.gets(c, want)
		}
	default:
		c.Until(p.reply(frames))
	}
}

// gets reads one reply. A number may have a name, whose value it is from now on.
func (p *play) gets(c *proxytest.Client, want string) {
	p.t.Helper()
	if name := strings.TrimPrefix(want, ":"); len(name) == 2 && name[0] == '$' && p.ids[name] == "" {
		p.ids[name] = strconv.Itoa(proxytest.Integer(p.t, c.Next()))
		return
	}
	if want == "end" {
		c.Ends()
		return
	}
	c.Gets(p.reply(want))
}

// whole has clients send all they have to say, in pieces of one size each.
func (p *play) whole(rest string) {
	p.t.Helper()
	var raw strings.Builder
	for command := range strings.SplitSeq(rest, " | ") {
		raw.WriteString(p.bytes(command))
	}
	for _, size := range []int{raw.Len(), 7, 1} {
		if raw.Len() > 1000 && size < raw.Len() {
			continue
		}
		c := p.side.Client("in pieces")
		for rest := raw.String(); len(rest) > 0; {
			n := min(size, len(rest))
			c.Raw(rest[:n])
			rest = rest[n:]
		}
		c.HalfClose()
		c.End()
	}
}

func (p *play) client(name string) *proxytest.Client {
	p.t.Helper()
	if p.clients[name] == nil {
		p.clients[name] = p.side.Speaking(name, p.proto)
	}
	return p.clients[name]
}

// numbered is a text with the numbers of clients for their names.
func (p *play) numbered(text string) string {
	return idForm.ReplaceAllStringFunc(text, func(name string) string { return cmp.Or(p.ids[name], name) })
}

// bytes are those of a command.
func (p *play) bytes(command string) string {
	p.t.Helper()
	command = p.numbered(command)
	if quoted, raw := strings.CutPrefix(command, "raw "); raw {
		text, err := strconv.Unquote(quoted)
		if err != nil {
			p.t.Fatalf("%s: %v", command, err)
		}
		return repeated(text)
	}
	line := repeated(command) + "\r\n"
	if p.inline {
		return line
	}
	f, _, err := resp.NewGuard().Next([]byte(line))
	if err != nil || len(f.Raw) == 0 {
		p.t.Fatalf("no command: %q", command)
	}
	return string(f.Raw)
}

func repeated(text string) string {
	return manyForm.ReplaceAllStringFunc(text, func(found string) string {
		m := manyForm.FindStringSubmatch(found)
		n, _ := strconv.Atoi(m[2])
		return strings.Repeat(m[1], n)
	})
}

// reply is the start of a reply as a script writes it.
func (p *play) reply(want string) string {
	want = p.numbered(want)
	switch {
	case want == "?":
		return ""
	case want == "nil":
		return "$-1"
	case strings.HasPrefix(want, `"`):
		text := strings.Trim(want, `"`)
		return "$" + strconv.Itoa(len(text)) + "\r\n" + text + "\r\n"
	}
	return strings.ReplaceAll(want, `\r\n`, "\r\n")
}
