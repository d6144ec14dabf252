package scatter

import (
	"bytes"
	"slices"
	"strconv"
)

// A client library that sees a cluster goes past the proxy to its servers. So the texts by which a server says that it
// is one of a cluster are edited to those of a server that stands alone.

// info is the first server's text, with the counts and the keys of all servers that can be reached. Client libraries
// ask for it before they use a connection, whichever servers they need then.
func info(all [][]byte) []byte {
	replies := slices.DeleteFunc(slices.Clone(all), func(r []byte) bool { return bytes.HasPrefix(r, []byte("-NOUPSTREAM ")) })
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
	return masked(withKeyspace(totals(replies), total))
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
