package redislink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/resp"
)

const (
	// AnswerLimit bounds one round trip; afterwards the connection counts as broken.
	AnswerLimit = 5 * time.Second
	// dialPause is how long a failed attempt to connect stands for the next ones, so that a worker per lock does not
	// dial a dead server.
	dialPause = 50 * time.Millisecond
	// warnPeriod is the least time between two entries of the log about connections that are given up.
	warnPeriod = time.Minute
	// A connection carries scripts of a few hundred bytes and answers of a few dozen.
	bufferSize = 16 << 10
)

// Options name the server of a Client, and the user that it connects as. Addr is required.
type Options struct {
	Addr string // for messages and, without Dial, host:port
	// Dial opens a connection. nil: TCP to Addr.
	Dial           func(ctx context.Context) (net.Conn, error)
	User, Password string
	DB             int
	Logger         *zap.Logger // nil: silent

	// Sharded reports whether channels belong to slots, as in a cluster: SSUBSCRIBE. nil: they do not.
	Sharded func() bool
	// Moved says that the server does not serve a channel: why is Redis's refusal; empty if Redis has ended the
	// subscription unasked. It reports whether another subscription follows, so that the refusal is not final. nil:
	// each refusal is.
	Moved func(channel string, why Refusal) bool
}

// Client is the Topology of one server, and its only Node. The library connects when something is to be sent: once for
// commands, once for subscriptions, and for calls that wait for replicas. It connects anew after a loss.
type Client struct {
	opts  Options        // immutable
	redis rueidis.Client // immutable after New
	subs  subscriber
	life  context.Context // the connections end with it
	end   context.CancelFunc

	mu         sync.Mutex    // guards the fields below
	failed     time.Time     // when connect has failed; zero: a connection was made since
	failure    error         // why that was
	warned     time.Time     // when the log was told of a connection that was given up
	up         bool          // a command was answered, and no connection was lost since
	connecting chan struct{} // closed when connect has ended; nil: it is not on its way
}

// New makes a client without connections, because Redis may be down when the proxy starts.
func New(opts Options) *Client {
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	if opts.Dial == nil {
		opts.Dial = func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", opts.Addr)
		}
	}
	c := &Client{opts: opts}
	c.life, c.end = context.WithCancel(context.Background())
	c.subs.init(c)
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{opts.Addr}, Username: opts.User, Password: opts.Password, SelectDB: opts.DB,
		ForceSingleClient:   true, // it connects at once; if that fails, its client is of use all the same
		DialCtxFn:           c.dial,
		DisableRetry:        true, // a script must never be repeated behind our back
		DisableCache:        true,
		PipelineMultiplex:   -1, // one connection, so that awaited calls keep their order
		BlockingPoolSize:    4,  // for subscriptions, one more while it is replaced, and two that wait for replicas
		RingScaleEachConn:   8,
		ReadBufferEachConn:  bufferSize,
		WriteBufferEachConn: bufferSize,
		Dialer:              net.Dialer{Timeout: AnswerLimit}, // for the handshake
		ConnWriteTimeout:    AnswerLimit,
		ClientSetInfo:       rueidis.DisableClientSetInfo,
	})
	if client == nil {
		panic("BUG: " + err.Error()) // the options contradict each other
	}
	c.redis = client
	return c
}

// dial opens a connection for the library. All its errors wrap ErrUnsent.
func (c *Client) dial(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
	if c.redis == nil { // New is not done
		return nil, errClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	nc, err := c.opts.Dial(ctx)
	if err != nil {
		c.lost() // the end of the last connection may have come before the answer on it was looked at
		return nil, unreached(err)
	}
	conn := &checked{Conn: nc, client: c, greeting: 1} // HELLO
	if c.opts.DB != 0 {
		conn.greeting++ // SELECT
	}
	conn.stop = context.AfterFunc(c.life, func() { _ = nc.Close() })
	return conn, nil
}

// unreached says that a connection could not be made, so nothing was sent.
func unreached(why error) error { return fmt.Errorf("connect: %w: %w", ErrUnsent, why) }

// reached notes that a connection was made.
func (c *Client) reached() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = time.Time{}
}

// broken tells the log why a connection is given up, from time to time.
func (c *Client) broken(why error) {
	c.mu.Lock()
	now := time.Now()
	tell := now.Sub(c.warned) >= warnPeriod
	if tell {
		c.warned = now
	}
	c.mu.Unlock()
	if tell {
		c.opts.Logger.Warn("a connection of the lock engine is closed", zap.String("addr", c.opts.Addr), zap.Error(why))
	}
}

// ready returns when there is a connection for a call. An error wraps ErrUnsent.
//
// The library would connect within the time of the call that comes first, and have the others wait for it beyond
// theirs. So one goroutine connects, within the time that a connection may take, and each call waits as long as it may.
func (c *Client) ready(ctx context.Context) error {
	c.mu.Lock()
	if c.up {
		c.mu.Unlock()
		return nil
	}
	if c.connecting == nil && time.Since(c.failed) < dialPause {
		defer c.mu.Unlock()
		return c.failure
	}
	if c.connecting == nil {
		c.connecting = make(chan struct{})
		go c.connect(c.connecting)
	}
	connecting := c.connecting
	c.mu.Unlock()
	select {
	case <-connecting:
	case <-ctx.Done():
		return unreached(ctx.Err())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.up {
		return nil
	}
	return c.failure
}

// connect has the library connect, if it is not connected.
func (c *Client) connect(ended chan struct{}) {
	ctx, cancel := context.WithTimeout(c.life, AnswerLimit)
	defer cancel()
	err := c.redis.Do(ctx, c.redis.B().Ping().Build()).Error()
	_, refused := rueidis.IsRedisErr(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.up = err == nil || refused; !c.up {
		c.failed, c.failure = time.Now(), err
		if !errors.Is(err, ErrUnsent) { // the PING is no call of the engine's
			c.failure = unreached(err)
		}
	}
	c.connecting = nil
	close(ended)
}

// lost notes the end of a connection: the next call asks first.
func (c *Client) lost() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.up = false
}

// Servers implements Topology.
func (c *Client) Servers() script.Servers { return script.Servers{} }

// Node implements Topology: there is one.
func (c *Client) Node(string) Node { return c }

// Listen implements Topology.
func (c *Client) Listen(l Listener) { c.subs.listener = l }

// Run implements Topology. The library does not know ctx when it connects for subscriptions: all connections end with it.
func (c *Client) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, c.end)()
	c.subs.run(ctx)
}

// Close implements Topology.
func (c *Client) Close() {
	c.end() // else the library waits for answers
	c.redis.Close()
}

// Eval implements Node.
func (c *Client) Eval(ctx context.Context, s Script, keys, args []string) (resp.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerLimit)
	defer cancel()
	if err := c.ready(ctx); err != nil {
		return resp.Value{}, err
	}
	call := Call{s, keys, args}
	reply := c.redis.Do(ctx, call.bySHA(c.redis.B()))
	if refusal, ok := rueidis.IsRedisErr(reply.Error()); ok && refusal.IsNoScript() {
		reply = c.redis.Do(ctx, call.byText(c.redis.B()))
	}
	return valueOf(reply)
}

// Ask is Eval for a key that is being moved to this server.
func (c *Client) Ask(ctx context.Context, s Script, keys, args []string) (resp.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerLimit)
	defer cancel()
	if err := c.ready(ctx); err != nil {
		return resp.Value{}, err
	}
	return valueOf(c.redis.DoMulti(ctx, c.redis.B().Asking().Build(), Call{s, keys, args}.byText(c.redis.B()))[1])
}

// bySHA is the command for a server that may know the script.
func (c Call) bySHA(b rueidis.Builder) rueidis.Completed {
	return b.Evalsha().Sha1(c.SHA()).Numkeys(int64(len(c.Keys))).Key(c.Keys...).Arg(c.Args...).Build()
}

// byText is the command for one that may not.
func (c Call) byText(b rueidis.Builder) rueidis.Completed {
	return b.Eval().Script(c.Text()).Numkeys(int64(len(c.Keys))).Key(c.Keys...).Arg(c.Args...).Build()
}

// classify sorts an error of the library into the three kinds that callers tell apart.
func classify(err error) error {
	refusal, refused := rueidis.IsRedisErr(err)
	switch {
	case refused:
		return Refusal(refusal.Error())
	case err == nil || errors.Is(err, ErrUnsent):
		return err
	}
	return fmt.Errorf("%w: %w", ErrInDoubt, err)
}

// valueOf turns what the library returns for a script into a reply. An error reply of Redis is a reply.
func valueOf(result rueidis.RedisResult) (resp.Value, error) {
	message, err := result.ToMessage()
	if rueidis.IsRedisNil(err) {
		return resp.Value{Kind: resp.Null, Null: true}, nil
	}
	switch refusal, refused := rueidis.IsRedisErr(err); {
	case err == nil:
		return decode(message), nil
	case refused:
		return resp.Value{Kind: resp.SimpleError, Str: []byte(refusal.Error())}, nil
	}
	return resp.Value{}, classify(err)
}

// decode turns a message into a value. Scripts return nothing but integers, strings, and arrays of these.
func decode(m rueidis.RedisMessage) resp.Value {
	switch {
	case m.IsInt64():
		n, _ := m.AsInt64()
		return resp.Value{Kind: resp.Integer, Int: n}
	case m.IsArray():
		list, _ := m.ToArray()
		v := resp.Value{Kind: resp.Array, Elems: make([]resp.Value, len(list))}
		for i, e := range list {
			v.Elems[i] = decode(e)
		}
		return v
	case m.IsNil():
		return resp.Value{Kind: resp.Null, Null: true}
	}
	text, _ := m.ToString()
	return resp.Value{Kind: resp.Bulk, Str: []byte(text)}
}
