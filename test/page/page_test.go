// Package page looks at the status page in a browser: make page. The screenshots are in the directory of artifacts.
package page

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/admin"
	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// stand is a proxy in front of a Redis, with its admin server.
type stand struct {
	t     *testing.T
	redis *redistest.Server
	proxy *proxy.Server
	admin *admin.Server
}

func newStand(t *testing.T) *stand {
	t.Helper()
	s := &stand{t: t, redis: redistest.Start(t)}
	up := upstream.Options{
		Addr: s.redis.Addr(), DialTimeout: 3 * time.Second, MaxLanes: 256,
		Pins: upstream.PinLimits{Max: 1000, Wait: time.Second, MaxLogins: 16, LoginWait: time.Second},
	}
	var err error
	s.proxy, err = proxy.New(proxy.Options{
		Listen: []string{"127.0.0.1:0"}, Upstream: up, Version: "0.1.0", DrainTimeout: time.Millisecond, Logger: zap.NewNop(),
		ClientAuth: proxy.AuthUpstream, ProxyProtocol: proxy.ProxyOff,
		Limits: proxy.Limits{
			Clients: 1000, Memory: 1 << 30, Query: 1 << 30, Unanswered: 1 << 30, Output: 1 << 30, LargeCommand: time.Minute, Handshake: time.Minute,
			PubSub: proxy.PubSub{Hard: 1 << 30, Soft: 1 << 30, SoftTime: time.Minute},
		},
		Locks: proxy.Locks{Lease: 30 * time.Second}, MaxEngines: 256,
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.admin, err = admin.New(admin.Options{Listen: ":0", Proxy: s.proxy, Logger: zap.NewNop()}); err != nil {
		t.Fatal(err)
	}
	for _, run := range []func(context.Context){s.proxy.Run, func(ctx context.Context) {
		if err := s.admin.Run(ctx); err != nil {
			t.Error(err)
		}
	}} {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			run(ctx)
		}()
		t.Cleanup(func() { cancel(); <-done })
	}
	redistest.Eventually(t, 20*time.Second, "the proxy to find Redis", func() bool { ready, _ := s.proxy.Ready(); return ready })
	return s
}

// client is one that has sent these commands; see redistest.Talk.
func (s *stand) client(commands ...string) net.Conn {
	s.t.Helper()
	return redistest.Talk(s.t, s.proxy.Addrs()[0].String(), commands...)
}

// populate makes locks of all kinds.
func (s *stand) populate() {
	for i, name := range []string{"billing-worker-1", "billing-worker-2", "report-nightly", "mail-sender", "thumbnailer", "search-indexer"} {
		s.client("CLIENT SETNAME "+name, fmt.Sprintf("LOCK %s", []string{
			"invoice:2026-11:acme", "invoice:2026-11:globex", "report:nightly", "mail:outbox", "thumbnail:batch:4711", "index:rebuild",
		}[i]))
	}
	s.client("CLIENT SETNAME cron", "LOCK cron:cleanup PX 120000")
	s.client("CLIENT SETNAME report-daily", "LOCK price-list SHARED")
	s.client("CLIENT SETNAME report-weekly", "LOCK price-list SHARED")
	s.client("CLIENT SETNAME renderer", "LOCK render LIMIT 4", "LOCK render LIMIT 4")
	gone := s.client("LOCK import:catalogue")
	s.redis.Do(s.t, "HSET", "cart:checkout:88213", "0e9e6f0a-6a5c-4f3e-9c55-0b3c7a1d2e4f:42", "1")
	s.redis.Do(s.t, "PEXPIRE", "cart:checkout:88213", "29000")
	s.redis.Do(s.t, "HSET", "migration", "deploy-7", "1")
	for i, key := range []string{
		"import:catalogue", "cart:checkout:88213", "migration", "invoice:2026-11:acme", "invoice:2026-11:acme", "invoice:2026-11:acme", "report:nightly", "import:catalogue",
	} {
		verb := []string{"LOCK", "FAIRLOCK"}[i%2]
		s.client(fmt.Sprintf("CLIENT SETNAME waiter-%d", i), "~"+verb+" "+key)
	}
	gone.Close()
	s.client("TRYLOCK report:nightly WAIT 20")
	s.client("CLIENT SETNAME importer", "MULTI", "SET a 1")
	s.client("CLIENT SETNAME events", "SUBSCRIBE news")
	s.client("CLIENT SETNAME queue", "~BLPOP jobs 0")
	s.client("CLIENT SETNAME <b>bold</b><script>document.title='owned'</script>", "SELECT 3", "SET x 1")
}

// load makes some traffic until stop is called, which the test does before its clean-up closes the clients.
func (s *stand) load() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			s.client("SET a 1", "GET a", fmt.Sprintf("LOCK t%d", i%7), "GET a", fmt.Sprintf("UNLOCK t%d", i%7)).Close()
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(20+i*7%60) * time.Millisecond):
			}
		}
	})
	return func() {
		cancel()
		all.Wait()
	}
}

// browser is a headless Chromium. It fails the test at an error of the page, and at a request to another server.
type browser struct {
	*testing.T
	ctx  context.Context
	base string
}

func newBrowser(t *testing.T, s *stand) *browser {
	t.Helper()
	path := os.Getenv("CHROMIUM")
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		if os.Getenv("LOCKPROXY_REQUIRE_BROWSER") != "" {
			t.Fatal("no Chromium: scripts/install-page-deps.sh installs it")
		}
		t.Skip("no Chromium: scripts/install-page-deps.sh installs it")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.Flag("no-sandbox", true), chromedp.WSURLReadTimeout(90*time.Second))
	alloc, stop := chromedp.NewExecAllocator(context.Background(), options...)
	first, cancel := chromedp.NewContext(alloc)
	t.Cleanup(func() { cancel(); stop() })
	if err := chromedp.Do(first); err != nil { // the browser lives as long as the context of this call
		t.Fatal(err)
	}
	ctx, end := context.WithTimeout(first, 4*time.Minute)
	b := &browser{T: t, ctx: ctx, base: "http://" + s.admin.Addr().String()}
	call(b, network.Enable, network.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
	var watching sync.WaitGroup
	watch(b, &watching, runtime.ExceptionThrown, func(ev runtime.EventExceptionThrown) { t.Errorf("the page throws: %+v", ev.ExceptionDetails) })
	watch(b, &watching, log.EntryAdded, func(ev log.EventEntryAdded) { t.Errorf("the browser says: %s %s", ev.Entry.Text, ev.Entry.URL) })
	watch(b, &watching, network.RequestWillBeSent, func(ev network.EventRequestWillBeSent) {
		if to, err := url.Parse(ev.Request.URL); err != nil || "http://"+to.Host != b.base {
			t.Errorf("the page asks for %s", ev.Request.URL)
		}
	})
	t.Cleanup(func() { end(); watching.Wait() })
	return b
}

// watch calls f for each event until the browser ends.
func watch[E any](b *browser, all *sync.WaitGroup, of cdp.Event[E], f func(E)) {
	events := chromedp.Events(b.ctx, of)
	all.Go(func() {
		for ev, err := range events {
			if err != nil {
				return
			}
			f(ev)
		}
	})
}

// call sends a command of the protocol.
func call[P, R any](b *browser, command cdp.Command[P, R], params P) {
	b.Helper()
	b.run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	}))
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.Fatal(err)
	}
}

func (b *browser) click(selector string) {
	b.Helper()
	b.run(chromedp.Click(chromedp.CSS(selector)))
}

func (b *browser) press(keys string) {
	b.Helper()
	b.run(chromedp.KeyEvent(keys))
}

// open shows the page at a size and in a colour scheme.
func (b *browser) open(hash string, width, height int64, scheme string) {
	b.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	b.run(chromedp.EmulateViewport(width, height), chromedp.Navigate(b.base+"/icon.svg"), chromedp.Navigate(b.base+"/"+hash))
	b.until("the page to have numbers", `document.documentElement.dataset.turn && !document.querySelector('#redis').hidden`)
}

// eval evaluates an expression.
func eval[T any](b *browser, expression string) T {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return v
}

func (b *browser) until(what, expression string) {
	b.Helper()
	redistest.Eventually(b.T, 30*time.Second, what, func() bool { return eval[bool](b, "Boolean("+expression+")") })
}

// keys are the locks in the table.
func (b *browser) keys() string {
	b.Helper()
	return strings.Join(eval[[]string](b, `[...document.querySelectorAll('#rows tbody tr td:first-child .key')].map(e => e.textContent)`), " ")
}

func (b *browser) picture(name string) {
	b.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.ArtifactDir(), name+".png"), png, 0o644); err != nil {
		b.Fatal(err)
	}
	if wide, most := eval[int](b, "document.documentElement.scrollWidth"), eval[int](b, "window.innerWidth"); wide > most {
		b.Errorf("%s: the page is %d wide in a window of %d", name, wide, most)
	}
}

func TestPageLooksRight(t *testing.T) {
	s := newStand(t)
	b := newBrowser(t, s)
	s.populate()
	defer s.load()()
	b.open("", 1280, 900, "light")
	b.until("rows", `document.querySelectorAll('#rows tbody tr').length > 5`)
	for _, scheme := range []string{"light", "dark"} {
		for width, height := range map[int64]int64{1280: 900, 400: 860} {
			for _, tab := range []string{"locks", "clients"} {
				b.open("#tab="+tab, width, height, scheme)
				b.picture(fmt.Sprintf("%s-%d-%s", tab, width, scheme))
			}
		}
	}
	b.open("", 1280, 900, "light")
	b.open("#tab=hot", 400, 860, "light")
	b.picture("hot-400-light")
	b.open("#search=nothing+like+it", 1280, 900, "light")
	b.picture("empty-1280-light")
}

func TestPageIsUsed(t *testing.T) {
	s := newStand(t)
	b := newBrowser(t, s)
	s.populate()
	b.open("", 1280, 900, "light")
	b.until("all locks to be shown", `document.querySelectorAll('#rows tbody tr').length === 14`)
	if title := eval[string](b, "document.title"); !strings.HasSuffix(title, "lockproxy") {
		t.Errorf("the title is %q", title)
	}

	s.client("LOCK a:new:lock")
	b.until("a lock that comes later", `document.querySelectorAll('#rows tbody tr').length === 15`)

	b.click("th[data-sort=key] button")
	b.until("the locks by key", `document.querySelector('#rows tbody .key').textContent === 'a:new:lock'`)
	b.click("th[data-sort=key] button")
	b.until("the other way round", `document.querySelector('th[data-sort=key]').ariaSort === 'descending' && document.querySelector('#rows tbody .key').textContent === 'thumbnail:batch:4711'`)

	b.click("#search")
	b.press("invoice")
	b.until("what was searched for", `document.querySelectorAll("#rows tbody tr").length === 2 && location.hash.includes("search=invoice")`)
	b.press("\x1b")
	b.until("all again", `document.querySelectorAll('#rows tbody tr').length === 15`)
	b.click("[data-only=orphaned]")
	b.click("th[data-sort=key] button")
	redistest.Eventually(t, 30*time.Second, "the locks held elsewhere, by key", func() bool { return b.keys() == "cart:checkout:88213 import:catalogue migration" })
	if text := eval[string](b, "document.querySelector('#rows').innerText"); !strings.Contains(text, "client gone") || !strings.Contains(text, "named owner") ||
		!strings.Contains(text, "0e9e6f0a") || strings.Contains(text, "deploy-7") {
		t.Errorf("holders: %s", text)
	}

	b.click("#tab-clients")
	b.until("the clients", `document.querySelector('#tab-clients').ariaSelected === 'true' && document.querySelector('#rows').innerText.includes("<script>")`)
	if text := eval[string](b, "document.querySelector('#rows').innerText"); !strings.Contains(text, "invoice:2026-11:acme") || !strings.Contains(text, "BLPOP") {
		t.Errorf("clients: %s", text)
	}
	b.click("#live")
	b.until("a pause", `document.querySelector('#live').ariaPressed === 'false'`)
	b.click("#live")
	b.click("#tab-locks")
	b.until("the locks again", `document.querySelectorAll('#rows tbody tr').length === 15`)

	b.click("#tab-hot")
	b.until("the hot locks", `document.querySelector('#tab-hot').ariaSelected === 'true' && document.querySelector('#rows').innerText.includes('report:nightly')`)
	b.click("#tab-locks")
	b.until("the locks again", `document.querySelectorAll('#rows tbody tr').length === 15`)
	if text := eval[string](b, "document.querySelector('#rows').innerText"); !strings.Contains(text, "limit 4") {
		t.Errorf("locks: %s", text)
	}
	b.click("a[href*='lock=invoice%3A2026-11%3Aacme']")
	b.until("the three that wait", `document.querySelector('#tab-clients').ariaSelected === 'true' && document.querySelectorAll('#rows tbody tr').length === 3 && !document.querySelector('#of').hidden`)
	b.click("#of")
	b.until("all clients", `document.querySelectorAll('#rows tbody tr').length > 15`)
	b.click("#tab-locks")

	b.click("#search")
	b.press("acme")
	b.until("one lock", `document.querySelectorAll('#rows tbody tr').length === 1`)
}

// Redis is away: the page says why, and does not say that leases are renewed.
func TestPageSaysThatRedisIsDown(t *testing.T) {
	s := newStand(t)
	b := newBrowser(t, s)
	s.client("LOCK a", "LOCK b PX 600000")
	b.open("", 1280, 900, "light")
	b.until("a lease that is renewed", `document.querySelector('#rows').innerText.includes('\nrenewed')`)
	s.redis.Stop()
	b.until("why Redis is down", `document.querySelector('#redis').textContent === 'Redis down' && document.querySelector('#why').textContent.includes('refused')`)
	b.until("the truth about renewals", `document.querySelector('#rows').innerText.includes('not renewed: Redis is down') && document.querySelector('#rows').innerText.includes('\nfixed')`)
	b.picture("down-1280-light")
	b.open("", 400, 860, "dark")
	b.picture("down-400-dark")
}

// Ten thousand locks cost neither the page nor the proxy much: some of them are shown, and clients are served meanwhile.
func TestTenThousandLocks(t *testing.T) {
	s := newStand(t)
	b := newBrowser(t, s)
	const locks = 10_000
	nc := s.client()
	var all []byte
	for i := range locks {
		all = resp.AppendCommand(all, "LOCK", fmt.Sprintf("lock:%05d", i))
	}
	go func() { _, _ = nc.Write(all) }()
	in := bufio.NewReader(nc)
	for range locks {
		if line, err := in.ReadString('\n'); err != nil || line[0] != ':' {
			t.Fatal(line, err)
		}
	}
	b.open("#sort=key&order=up", 1280, 900, "light")
	b.until("the first rows", `document.querySelector('#more').textContent.startsWith('1–50 of 500. 500 of 10,000 are shown.')`)
	if top := eval[float64](b, "document.querySelector('#more').getBoundingClientRect().bottom"); top > 400 {
		t.Errorf("the number of rows is at %.0f px", top)
	}
	if height := eval[int](b, "document.documentElement.scrollHeight"); height > 5000 {
		t.Errorf("the page has %d px", height)
	}
	b.picture("many-1280-light")
	b.click("#later")
	b.until("the second page", `document.querySelector('#rows tbody .key').textContent === 'lock:00050' && location.hash.includes('page=2')`)
	b.click("#search")
	b.press("lock:0999")
	b.until("ten of them", `document.querySelectorAll('#rows tbody tr').length === 10`)
	drawing := eval[float64](b, `(() => { const rows = {locks: Array.from({length: 500}, (_, i) => ({key: 'k' + i, database: 0, user: '', holder: 'here', client: '127.0.0.1:1', held_seconds: i,
		lease_left_seconds: 9, renewal: 'renewed', holds: 1, fence: i, waiters: i, fair_waiters: 0, oldest_wait_seconds: i})), matching: 10000, held: 10000};
		const begin = performance.now(); drawTable(tables.locks, rows); drawTable(tables.locks, rows); return performance.now() - begin; })()`)
	t.Logf("500 rows are drawn twice in %.0f ms", drawing)
	if drawing > 2000 {
		t.Errorf("500 rows take %.0f ms twice", drawing)
	}

	asked := make(chan time.Duration, 1)
	go func() {
		begin := time.Now()
		for range 10 {
			eval[chromedp.Void](b, "void fetch('/locks').then(a => a.json()).then(a => a.locks.length).then(n => { window.n = n; })")
			redistest.Eventually(t, 30*time.Second, "an answer", func() bool { return eval[int](b, "window.n || 0") == 500 })
			eval[chromedp.Void](b, "window.n = 0")
		}
		asked <- time.Since(begin)
	}()
	pinger := s.client()
	slowest, n := time.Duration(0), 0
	lines := bufio.NewReader(pinger)
	for {
		select {
		case took := <-asked:
			t.Logf("10 tables of 500 rows in %s; %d PINGs meanwhile, the slowest took %s", took, n, slowest)
			if slowest > time.Second {
				t.Errorf("a PING took %s", slowest)
			}
			return
		default:
		}
		begin := time.Now()
		if _, err := pinger.Write([]byte("PING\r\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(begin))
		n++
	}
}
