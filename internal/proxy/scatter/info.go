package scatter

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// info is the first server's text, with the counts and the keys of all servers that can be reached. Client libraries
// ask for it before they use a connection, whichever servers they need then.
func info(all [][]byte) []byte {
	replies := slices.DeleteFunc(slices.Clone(all), func(r []byte) bool {
		return bytes.HasPrefix(r, []byte("-CLUSTERDOWN "))
	})
	if len(replies) == 0 {
		return all[0]
	}
	var total [3]int // of database 0, the only one of a cluster: keys, keys with a TTL, average TTL
	weighted := 0
	for _, r := range replies {
		if r[0] != '$' && r[0] != '=' {
			return r
		}
		n := keyspace(r)
		total[0], total[1] = total[0]+n[0], total[1]+n[1]
		weighted += n[1] * n[2]
	}
	if total[1] > 0 {
		total[2] = weighted / total[1]
	}
	return masked(withKeyspace(summedUp(replies), total))
}

var keyspaceHead = []byte("# Keyspace\r\n")

// keyspace reads the line of database 0.
func keyspace(reply []byte) (n [3]int) {
	_, rest, found := bytes.Cut(reply, keyspaceHead)
	rest, isLine := bytes.CutPrefix(rest, []byte("db0:"))
	if !found || !isLine {
		return n
	}
	line, _, _ := bytes.Cut(rest, []byte("\r\n"))
	for i, field := range bytes.SplitN(line, []byte(","), 4) {
		if _, value, _ := bytes.Cut(field, []byte("=")); i < len(n) {
			n[i], _ = strconv.Atoi(string(value))
		}
	}
	return n
}

// withKeyspace replaces the line of database 0.
func withKeyspace(reply []byte, n [3]int) []byte {
	at := bytes.Index(reply, keyspaceHead)
	if at < 0 {
		return reply
	}
	at += len(keyspaceHead)
	head, rest := reply[:at], reply[at:]
	if bytes.HasPrefix(rest, []byte("db0:")) {
		rest = rest[bytes.IndexByte(rest, '\n')+1:]
	}
	var line []byte
	if n[0] > 0 {
		line = append(line, "db0:keys="...)
		line = strconv.AppendInt(line, int64(n[0]), 10)
		line = append(line, ",expires="...)
		line = strconv.AppendInt(line, int64(n[1]), 10)
		line = append(line, ",avg_ttl="...)
		line = strconv.AppendInt(line, int64(n[2]), 10)
		line = append(line, '\r', '\n')
	}
	return bytes.Join([][]byte{head, line, rest}, nil)
}

// summed are the fields of INFO that count what happens at each server. The others are those of the first server.
var summed = []string{
	"blocked_clients", "tracking_clients", "pubsub_clients", "watching_clients", "clients_in_timeout_table",
	"total_blocking_keys", "total_blocking_keys_on_nokey", "total_watched_keys", "rdb_changes_since_last_save",
	"total_connections_received", "total_commands_processed", "instantaneous_ops_per_sec", "total_net_input_bytes",
	"total_net_output_bytes", "rejected_connections", "expired_keys", "evicted_keys", "evicted_clients",
	"keyspace_hits", "keyspace_misses", "pubsubshard_channels", "total_error_replies", "unexpected_error_replies",
	"total_reads_processed", "total_writes_processed", "lazyfreed_objects", "total_forks", "acl_access_denied_auth",
	"acl_access_denied_cmd", "acl_access_denied_key", "acl_access_denied_channel",
}

// statistics have a line for each command or error that a server has seen, name:key=number,key=number, behind a
// heading.
var statistics = []struct{ prefix, heading string }{{"cmdstat_", "# Commandstats"}, {"errorstat_", "# Errorstats"}}

// headingOf is the heading of a statistic; empty: that name is of none.
func headingOf(name []byte) string {
	for _, s := range statistics {
		if strings.HasPrefix(string(name), s.prefix) {
			return s.heading
		}
	}
	return ""
}

// summedUp replaces the counts in the first server's text by those of all servers.
func summedUp(replies [][]byte) []byte {
	if len(replies) == 1 {
		return replies[0]
	}
	t := totals{map[string]int64{}, map[string]*statistic{}, map[string][]string{}}
	for _, r := range replies {
		t.add(r)
	}
	return t.edit(replies[0])
}

// totals are the sums of all servers.
type totals struct {
	counts map[string]int64
	stats  map[string]*statistic
	names  map[string][]string // of the statistics, in their order, by heading
}

// add adds the counts in the text of one server.
func (t *totals) add(text []byte) {
	for line := range bytes.SplitSeq(text, []byte("\r\n")) {
		name, value, found := bytes.Cut(line, []byte(":"))
		switch heading := headingOf(name); {
		case !found:
		case heading != "":
			one := t.stats[string(name)]
			if one == nil {
				one = &statistic{}
				t.stats[string(name)] = one
				t.names[heading] = append(t.names[heading], string(name))
			}
			one.add(value)
		case slices.Contains(summed, string(name)):
			n, _ := strconv.ParseInt(string(value), 10, 64)
			t.counts[string(name)] += n
		}
	}
}

// edit puts the sums into a text. The statistics of all servers stand behind its headings.
func (t *totals) edit(text []byte) []byte {
	out := make([]byte, 0, len(text)+256)
	for line := range bytes.SplitSeq(text, []byte("\r\n")) {
		name, _, found := bytes.Cut(line, []byte(":"))
		switch {
		case found && headingOf(name) != "":
			continue
		case found && slices.Contains(summed, string(name)):
			out = strconv.AppendInt(append(append(out, name...), ':'), t.counts[string(name)], 10)
		default:
			out = append(out, line...)
		}
		out = append(out, "\r\n"...)
		for _, name := range t.names[string(line)] {
			out = t.stats[name].appendTo(append(append(out, name...), ':'))
			out = append(out, "\r\n"...)
		}
	}
	return out[:len(out)-len("\r\n")]
}

// A statistic is the sums of one line.
type statistic struct {
	keys []string
	sums []int64
}

func (s *statistic) add(line []byte) {
	i := 0
	for field := range bytes.SplitSeq(line, []byte(",")) {
		key, value, _ := bytes.Cut(field, []byte("="))
		n, _ := strconv.ParseInt(string(value), 10, 64)
		if i == len(s.keys) {
			s.keys, s.sums = append(s.keys, string(key)), append(s.sums, 0)
		}
		s.sums[i] += n
		i++
	}
}

// appendTo appends the line. The mean time of a call is that of all calls.
func (s *statistic) appendTo(out []byte) []byte {
	for i, key := range s.keys {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, key...), '=')
		if key == "usec_per_call" && i == 2 && s.sums[0] > 0 {
			out = strconv.AppendFloat(out, float64(s.sums[1])/float64(s.sums[0]), 'f', 2, 64)
			continue
		}
		out = strconv.AppendInt(out, s.sums[i], 10)
	}
	return out
}

// A client library that sees a cluster goes past the proxy to its servers. So the texts by which a server says that it
// is one of a cluster are edited to those of a server that stands alone.

// masks are the lines of INFO that are edited.
var masks = [][2][]byte{
	{[]byte("redis_mode:cluster\r\n"), []byte("redis_mode:standalone\r\n")},
	{[]byte("server_mode:cluster\r\n"), []byte("server_mode:standalone\r\n")},
	{[]byte("cluster_enabled:1\r\n"), []byte("cluster_enabled:0\r\n")},
}

// masked edits the text of an INFO. The length in its head may be that of another text.
func masked(reply []byte) []byte {
	for _, m := range masks {
		reply = bytes.Replace(reply, m[0], m[1], 1)
	}
	return withLength(reply)
}

var (
	modeCluster    = []byte("$4\r\nmode\r\n$7\r\ncluster\r\n")
	modeStandalone = []byte("$4\r\nmode\r\n$10\r\nstandalone\r\n")
)

// Greeting edits the reply to a HELLO.
func Greeting(reply []byte) []byte { return bytes.Replace(reply, modeCluster, modeStandalone, 1) }

// withLength writes the length of a text anew into its head.
func withLength(reply []byte) []byte {
	body := reply[bytes.IndexByte(reply, '\n')+1:]
	return append(resp.AppendHeader(make([]byte, 0, len(body)+16), reply[0], len(body)-len("\r\n")), body...)
}
