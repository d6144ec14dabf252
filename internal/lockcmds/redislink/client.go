package redislink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
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

// Client is the Topology of one server, and its only Node. It has one connection for commands and one for
// subscriptions. They are made when they are first needed, because Redis may be down when the proxy starts, and made
// anew by themselves afterwards.
type Client struct {
	option rueidis.ClientOption // immutable
	log    *zap.Logger
	subs   subscriber

	mu     sync.Mutex // guards the fields below
	warned time.Time  // when the log was told of bytes that are no replies
	client rueidis.Client
	making chan struct{} // closed at the end of the attempt to connect; nil: there is none under way
	failed time.Time     // of the latest failure to connect
	err    error
	closed bool
}

// New checks the options. It starts nothing.
func New(opts Options) (*Client, error) {
	if opts.Addr == "" {
		return nil, errors.New("redislink: no address of redis")
	}
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	c := &Client{log: opts.Logger}
	option := rueidis.ClientOption{
		InitAddress: []string{opts.Addr}, Username: opts.User, Password: opts.Password, SelectDB: opts.DB,
		ForceSingleClient:   true,
		DisableRetry:        true, // a script must never be repeated behind our back
		DisableCache:        true,
		PipelineMultiplex:   -1, // one connection, so that awaited calls keep their order
		BlockingPoolSize:    4,  // for subscriptions, one more while it is replaced, and two that wait for replicas
		RingScaleEachConn:   8,
		ReadBufferEachConn:  bufferSize,
		WriteBufferEachConn: bufferSize,
		ConnWriteTimeout:    AnswerLimit,
		ClientSetInfo:       rueidis.DisableClientSetInfo,
	}
	option.DialCtxFn = func(ctx context.Context, addr string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
		dial := opts.Dial
		if dial == nil {
			dial = func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", addr) }
		}
		nc, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		return &checked{Conn: nc, broken: c.broken}, nil
	}
	c.option = option
	c.subs.init(c, opts)
	return c, nil
}

// warnPeriod is the least time between two entries of the log about bytes that are no replies.
const warnPeriod = time.Minute

// broken tells the log why a connection is given up.
func (c *Client) broken(why error) {
	c.mu.Lock()
	told := time.Since(c.warned) < warnPeriod
	if !told {
		c.warned = time.Now()
	}
	c.mu.Unlock()
	if !told {
		c.log.Warn("a connection of the lock engine is closed", zap.String("addr", c.option.InitAddress[0]), zap.Error(why))
	}
}

// Servers implements Topology.
func (c *Client) Servers() script.Servers { return script.Servers{} }

// Node implements Topology: there is one.
func (c *Client) Node(string) Node { return c }

// Listen implements Topology.
func (c *Client) Listen(l Listener) { c.subs.listener = l }

// Run implements Topology.
func (c *Client) Run(ctx context.Context) { c.subs.run(ctx) }

// get returns the library's client, and waits for it until ctx ends. The error wraps ErrUnsent.
func (c *Client) get(ctx context.Context) (rueidis.Client, error) {
	c.mu.Lock()
	switch {
	case c.client != nil:
		defer c.mu.Unlock()
		return c.client, nil
	case c.closed:
		c.mu.Unlock()
		return nil, errClosed
	case c.err != nil && time.Since(c.failed) < dialPause:
		defer c.mu.Unlock()
		return nil, c.err
	}
	made := c.making
	if made == nil {
		made = make(chan struct{})
		c.making = made
		go c.connect(made)
	}
	c.mu.Unlock()
	select {
	case <-made:
	case <-ctx.Done():
		return nil, fmt.Errorf("connect: %w: %w", ErrUnsent, ctx.Err())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.client != nil:
		return c.client, nil
	case c.closed:
		return nil, errClosed
	}
	return nil, c.err
}

// connect makes the library's client. It closes made at its end.
func (c *Client) connect(made chan<- struct{}) {
	defer close(made)
	client, err := rueidis.NewClient(c.option)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.making = nil
	switch {
	case err != nil:
		c.failed, c.err = time.Now(), fmt.Errorf("connect: %w: %w", ErrUnsent, err)
	case !c.closed:
		c.client, c.err = client, nil
		return
	}
	if client != nil {
		client.Close()
	}
}

// Close implements Topology.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	client, made := c.client, c.making
	c.client = nil
	c.mu.Unlock()
	if made != nil {
		<-made
	}
	if client != nil {
		client.Close()
	}
}

// Eval implements Node.
func (c *Client) Eval(ctx context.Context, s Script, keys, args []string) (resp.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerLimit)
	defer cancel()
	client, err := c.get(ctx)
	if err != nil {
		return resp.Value{}, err
	}
	n := int64(len(keys))
	reply := client.Do(ctx, client.B().Evalsha().Sha1(s.SHA()).Numkeys(n).Key(keys...).Arg(args...).Build())
	if refusal, ok := rueidis.IsRedisErr(reply.Error()); ok && refusal.IsNoScript() {
		reply = client.Do(ctx, client.B().Eval().Script(s.Text()).Numkeys(n).Key(keys...).Arg(args...).Build())
	}
	return valueOf(reply)
}

// Ask is Eval for a key that is being moved to this server.
func (c *Client) Ask(ctx context.Context, s Script, keys, args []string) (resp.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerLimit)
	defer cancel()
	client, err := c.get(ctx)
	if err != nil {
		return resp.Value{}, err
	}
	answers := client.DoMulti(ctx, client.B().Asking().Build(),
		client.B().Eval().Script(s.Text()).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
	return valueOf(answers[1])
}

// List implements Node.
func (c *Client) List(ctx context.Context, key string, most int) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerLimit)
	defer cancel()
	client, err := c.get(ctx)
	if err != nil {
		return nil, err
	}
	list, err := client.Do(ctx, client.B().Lrange().Key(key).Start(0).Stop(int64(most)-1).Build()).AsStrSlice()
	if err != nil {
		return nil, classify(err)
	}
	return list, nil
}

// Publish implements Node.
func (c *Client) Publish(ctx context.Context, messages []Message) error {
	ctx, cancel := context.WithTimeout(ctx, AnswerLimit)
	defer cancel()
	client, err := c.get(ctx)
	if err != nil {
		return err
	}
	commands := make(rueidis.Commands, len(messages))
	for i, m := range messages {
		commands[i] = client.B().Publish().Channel(m.Channel).Message(m.Text).Build()
	}
	var first error
	for _, answer := range client.DoMulti(ctx, commands...) {
		if err := answer.Error(); err != nil && first == nil {
			first = classify(err)
		}
	}
	return first
}

// classify sorts an error of the library into the three kinds that callers tell apart.
func classify(err error) error {
	if refusal, ok := rueidis.IsRedisErr(err); ok {
		return Refusal(refusalWords(refusal))
	}
	kind := ErrInDoubt
	var op *net.OpError
	if errors.Is(err, ErrUnsent) || errors.As(err, &op) && op.Op == "dial" {
		kind = ErrUnsent
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// refusalWords are those of Redis. The library takes the code ERR off.
func refusalWords(refusal *rueidis.RedisError) string {
	text := refusal.Error()
	code, _, _ := strings.Cut(text, " ")
	if code == "" || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return "ERR " + text
	}
	return text
}

// valueOf turns what the library returns for a script into a reply. An error reply of Redis is a reply.
func valueOf(result rueidis.RedisResult) (resp.Value, error) {
	message, err := result.ToMessage()
	if rueidis.IsRedisNil(err) {
		return resp.Value{Kind: resp.Null, Null: true}, nil
	}
	if refusal, ok := rueidis.IsRedisErr(err); ok {
		return resp.Value{Kind: resp.SimpleError, Str: []byte(refusalWords(refusal))}, nil
	}
	if err != nil {
		return resp.Value{}, classify(err)
	}
	return decode(message), nil
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
