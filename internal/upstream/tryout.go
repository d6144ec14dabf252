package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// These errors say that the address has the wrong form.
var (
	errSentinel = errors.New("it is a Sentinel: its address is sentinel://host:port,host:port/name")
	errNode     = errors.New("it is a node of a cluster, of which some nodes are named: cluster://host:port,host:port")
	errNoNode   = errors.New("it is no node of a cluster: its address is host:port")
)

// needs are the questions that the proxy's own user must be allowed to ask, and inCluster those in a cluster.
var (
	needs = [][]string{
		{"PING"},
		{"HELLO"},
		{"COMMAND"},
		{"ROLE"},
		{"INFO", "memory"},
		{"CONFIG", "GET", "maxmemory-clients"},
		{"PERSIST", probeKey},
	}
	inCluster = [][]string{{"CLUSTER", "INFO"}, {"CLUSTER", "SLOTS"}, {"CLUSTER", "NODES"}}
)

const (
	probeKey     = "lockproxy:probe"
	probeChannel = "redisson_lock__channel:{lockproxy:probe}"
)

// lockNeeds are the commands that the scripts of the lock commands use. They are not executed.
var lockNeeds = []string{
	"EVALSHA x 1 " + probeKey, "PUBLISH " + probeChannel + " x", "UNSUBSCRIBE " + probeChannel, "TIME",
	"GET " + probeKey, "SET " + probeKey + " x", "DEL " + probeKey, "EXISTS " + probeKey, "PEXPIRE " + probeKey + " 1",
	"PTTL " + probeKey, "HGET " + probeKey + " x", "HMGET " + probeKey + " x", "HGETALL " + probeKey,
	"HEXISTS " + probeKey + " x", "HSET " + probeKey + " x x", "HDEL " + probeKey + " x",
	"LLEN " + probeKey, "LINDEX " + probeKey + " 0", "LRANGE " + probeKey + " 0 0", "RPUSH " + probeKey + " x",
	"LREM " + probeKey + " 0 x", "ZADD " + probeKey + " 0 x",
	"ZCARD " + probeKey, "ZRANGE " + probeKey + " 0 0", "ZREM " + probeKey + " x", "ZSCORE " + probeKey + " x",
}

// sharedNeeds are those that only the scripts of SHARED and LIMIT use.
var sharedNeeds = []string{
	"SET {" + probeKey + "}:owner:rwlock_timeout:1 x", "PUBLISH redisson_rwlock:{" + probeKey + "} x",
	"HLEN " + probeKey, "HRANDFIELD " + probeKey + " 1",
	"PEXPIREAT " + probeKey + " 1", "ZMSCORE " + probeKey + " x", "ZRANGEBYLEX " + probeKey + " - +",
	"HSCAN " + probeKey + " 0", "ZCOUNT " + probeKey + " 0 0", "ZRANGEBYSCORE " + probeKey + " 0 0",
}

// deniedScript answers those of the commands in ARGV that the user may not execute. Before Redis 7.0 it cannot know.
const deniedScript = `local denied = {}
if not redis.acl_check_cmd then return denied end
for _, text in ipairs(ARGV) do
	local words = {}
	for word in string.gmatch(text, '%S+') do words[#words + 1] = word end
	if not redis.acl_check_cmd(unpack(words)) then denied[#denied + 1] = text end
end
return denied`

// vital are the commands that Redis must know. Without HELLO, the lock engine is told of no release at another proxy.
var vital = []string{"HELLO", "EVAL", "SUBSCRIBE"}

// TryOut asks for everything that the proxy needs of Redis. lent: clients use the proxy's own user, which then needs
// the rights of the lock commands, too. The error names each right that is missing.
func (a *asker) TryOut(ctx context.Context, lent bool) error {
	if err := a.Probe(ctx); err != nil {
		return err
	}
	nc, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer a.Dialer.HangUp(nc)
	defer context.AfterFunc(ctx, func() { _ = nc.Close() })() // ends the questions
	switch reply, err := a.Dialer.Ask(nc, "ROLE"); {
	case err != nil:
		return err
	case bytes.HasPrefix(reply, []byte("*2\r\n$8\r\nsentinel")):
		return errSentinel
	}
	switch reply, err := a.Dialer.Ask(nc, "INFO", "cluster"); {
	case err != nil:
		return err
	case !a.Cluster && bytes.Contains(reply, []byte("\r\ncluster_enabled:1")):
		return errNode
	case a.Cluster && bytes.Contains(reply, []byte("\r\ncluster_enabled:0")):
		return errNoNode
	}
	asked := slices.Clone(needs)
	if a.Cluster {
		asked = append(asked, inCluster...)
	}
	if lent {
		asked = append(asked, slices.Concat([]string{"EVAL", deniedScript, "1", probeKey}, lockNeeds))
		asked = append(asked, []string{"SUBSCRIBE", probeChannel}) // no other command may follow it
	}
	var missing []error
	for _, question := range asked {
		name := question[0]
		if name == "SUBSCRIBE" {
			if err := a.hintOfShared(nc); err != nil {
				return err
			}
		}
		reply, err := a.Dialer.Ask(nc, question...)
		if err != nil {
			return err
		}
		if name == "CONFIG" || name == "CLUSTER" {
			name += " " + question[1]
		}
		line := strings.TrimSpace(string(reply))
		if isNoAuth(reply) { // so will be all others, and Redis closes the connection at a long one
			if lent {
				return fmt.Errorf("%s: %s", name, line[1:])
			}
			return nil
		}
		if isDenied(line) || strings.HasPrefix(line, "-ERR unknown command") && slices.Contains(vital, name) {
			missing = append(missing, fmt.Errorf("%s: %s", name, line[1:]))
		}
		if name == "EVAL" {
			for _, denied := range deniedOf(reply) {
				command, _, _ := strings.Cut(denied, " ")
				missing = append(missing, fmt.Errorf("%s: NOPERM in the scripts of the lock commands", command))
			}
		}
	}
	return errors.Join(missing...)
}

// deniedOf is the answer of deniedScript.
func deniedOf(reply []byte) (denied []string) {
	v, _, err := resp.Decode(reply)
	if err != nil {
		return nil
	}
	for _, e := range v.Elems {
		denied = append(denied, string(e.Str))
	}
	return denied
}

// hintOfShared warns of rights that clients miss only when they use SHARED or LIMIT.
func (a *asker) hintOfShared(nc net.Conn) error {
	reply, err := a.Dialer.Ask(nc, slices.Concat([]string{"EVAL", deniedScript, "1", probeKey}, sharedNeeds)...)
	if err != nil {
		return err
	}
	if denied := deniedOf(reply); len(denied) > 0 {
		a.Logger.Warn("the user lacks rights that LOCK … SHARED and LOCK … LIMIT need; "+
			"the channel redisson_rwlock is only for Redisson's readers and writers",
			zap.Strings("missing", denied))
	}
	return nil
}
