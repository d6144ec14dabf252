package clients

import (
	"bytes"
	"strconv"
	"strings"
)

// Line is one line of CLIENT LIST as Redis sent it, without its end: "id=3 addr=127.0.0.1:5000 … resp=2". No value has
// a space in it, except for the path of a unix socket.
type Line []byte

// Field is the value of a field; empty: it has none, or there is no such field.
func (l Line) Field(name string) []byte {
	if v, ok := bytes.CutPrefix(l, []byte(name+"=")); ok {
		return untilSpace(v)
	}
	i := bytes.Index(l, []byte(" "+name+"="))
	if i < 0 {
		return nil
	}
	return untilSpace(l[i+len(name)+2:])
}

// untilSpace is the value at the start of v: up to the next field.
func untilSpace(v []byte) []byte {
	for end := 0; ; end++ {
		i := bytes.IndexByte(v[end:], ' ')
		if i < 0 {
			return v
		}
		end += i
		if startsField(v[end+1:]) {
			return v[:end]
		}
	}
}

// startsField reports whether a name of lower case letters and a '=' stand here. In the path of a unix socket they do
// not.
func startsField(b []byte) bool {
	for i, c := range b {
		switch {
		case c == '=':
			return i > 0
		case c != '-' && (c < 'a' || c > 'z'):
			return false
		}
	}
	return false
}

// number is the value of a field that is an integer; 0 if there is none.
func (l Line) number(name string) int64 {
	n, _ := strconv.ParseInt(string(l.Field(name)), 10, 64)
	return n
}

// Type is the class of a client that filters choose by.
type Type uint8

// The types of clients. AnyType is the zero value, for filters.
const (
	AnyType Type = iota
	Normal       // requests and replies, and MONITOR
	Replica
	PubSub
	Master
)

// typeNames are Redis's words, in lower case. Master and Primary, Replica and Slave, are the same.
var typeNames = map[string]Type{
	"normal": Normal, "slave": Replica, "replica": Replica, "pubsub": PubSub, "master": Master, "primary": Master,
}

// TypeNamed finds a type by its name in any case; AnyType: there is none.
func TypeNamed(name []byte) Type { return typeNames[strings.ToLower(string(name))] }

// Shape has the fields that a version of Redis shows of a client, in their order.
type Shape struct{ fields []shapeField }

type shapeField struct {
	name string
	zero string // what stands in a field that nothing is known about: "0" if Redis counts something there, else nothing
}

// usualLine is a line of Redis 7.0, for where Redis has not shown its own.
const usualLine = "id=0 addr= laddr= fd=0 name= age=0 idle=0 flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 " +
	"qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd=NULL " +
	"user=default redir=-1 resp=2"

// ShapeOf is the shape of the first line of a CLIENT LIST.
func ShapeOf(list []byte) *Shape {
	rest, _, _ := bytes.Cut(list, []byte("\n"))
	if len(rest) == 0 {
		rest = []byte(usualLine)
	}
	var s Shape
	for startsField(rest) {
		name, after, _ := bytes.Cut(rest, []byte("="))
		value := untilSpace(after)
		f := shapeField{name: string(name)}
		if _, err := strconv.ParseInt(string(value), 10, 64); err == nil {
			f.zero = "0"
		}
		s.fields = append(s.fields, f)
		rest = after[min(len(after), len(value)+1):]
	}
	return &s
}
