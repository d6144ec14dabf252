package commands

import "testing"

// Redis 6 has no flag for commands that may wait, but it has their ACL category.
func TestBlockingCommandsOfAnOlderRedisAreKnownByTheirCategory(t *testing.T) {
	table, err := Parse([]byte("*2\r\n" +
		"*7\r\n$5\r\nblpop\r\n:-3\r\n*2\r\n+write\r\n+noscript\r\n:1\r\n:-2\r\n:1\r\n*4\r\n+@write\r\n+@list\r\n+@slow\r\n+@blocking\r\n" +
		"*7\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n*3\r\n+@read\r\n+@string\r\n+@fast\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	if f := table.Lookup("blpop").Flags; f&Blocking == 0 {
		t.Errorf("blpop: flags %b", f)
	}
	if f := table.Lookup("get").Flags; f != 0 {
		t.Errorf("get: flags %b", f)
	}
}
