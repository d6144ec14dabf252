package scatter

import (
	"bytes"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// summed are the fields of INFO that count what happens at each server. The others are those of the first server.
var summed = map[string]bool{
	"blocked_clients": true, "tracking_clients": true, "pubsub_clients": true, "watching_clients": true,
	"clients_in_timeout_table": true, "total_blocking_keys": true, "total_blocking_keys_on_nokey": true, "total_watched_keys": true,
	"rdb_changes_since_last_save": true,
	"total_connections_received":  true, "total_commands_processed": true, "instantaneous_ops_per_sec": true, "total_net_input_bytes": true,
	"total_net_output_bytes": true, "rejected_connections": true, "expired_keys": true, "evicted_keys": true, "evicted_clients": true,
	"keyspace_hits": true, "keyspace_misses": true, "pubsubshard_channels": true, "total_error_replies": true, "unexpected_error_replies": true,
	"total_reads_processed": true, "total_writes_processed": true, "lazyfreed_objects": true, "total_forks": true,
	"acl_access_denied_auth": true, "acl_access_denied_cmd": true, "acl_access_denied_key": true, "acl_access_denied_channel": true,
}

// Statistics have a line for each command or error that a server has seen, name:key=number,key=number.
var statistics = [][]byte{[]byte("cmdstat_"), []byte("errorstat_")}

// totals replaces the counts in the first server's text by those of all servers. Lines that the first server lacks
// stand behind the last one of their kind.
func totals(replies [][]byte) []byte {
	if len(replies) == 1 {
		return replies[0]
	}
	sums := map[string]int64{}
	stats := map[string]*statistic{}
	var order [2][]string // names of statistics, by kind
	for _, r := range replies {
		for line := range bytes.SplitSeq(r, []byte("\r\n")) {
			name, value, found := bytes.Cut(line, []byte(":"))
			switch kind := kindOfStatistic(name); {
			case !found:
			case kind >= 0:
				one := stats[string(name)]
				if one == nil {
					one = &statistic{}
					stats[string(name)] = one
					order[kind] = append(order[kind], string(name))
				}
				one.add(value)
			case summed[string(name)]:
				n, _ := strconv.ParseInt(string(value), 10, 64)
				sums[string(name)] += n
			}
		}
	}
	out := make([]byte, 0, len(replies[0])+256)
	lines := bytes.Split(replies[0], []byte("\r\n"))
	for i, line := range lines {
		if i > 0 {
			out = append(out, "\r\n"...)
		}
		name, _, found := bytes.Cut(line, []byte(":"))
		kind := kindOfStatistic(name)
		switch {
		case !found || kind < 0 && !summed[string(name)]:
			out = append(out, line...)
			if string(line) != "# Commandstats" && string(line) != "# Errorstats" {
				continue
			}
			kind = 0
			if string(line) == "# Errorstats" {
				kind = 1
			}
			for _, name := range order[kind] {
				out = append(append(append(out, "\r\n"...), name...), ':')
				out = stats[name].appendTo(out)
			}
		case kind >= 0:
			out = out[:len(out)-len("\r\n")] // it stands behind its heading
		default:
			out = append(append(out, name...), ':')
			out = strconv.AppendInt(out, sums[string(name)], 10)
		}
	}
	return out
}

// kindOfStatistic is the index in statistics of the kind of a line; -1: it is none.
func kindOfStatistic(name []byte) int {
	for i, prefix := range statistics {
		if bytes.HasPrefix(name, prefix) {
			return i
		}
	}
	return -1
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

// withLength writes the length of a text anew into its head.
func withLength(reply []byte) []byte {
	body := reply[bytes.IndexByte(reply, '\n')+1:]
	return append(resp.AppendHeader(make([]byte, 0, len(body)+16), reply[0], len(body)-len("\r\n")), body...)
}
