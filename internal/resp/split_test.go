package resp

import "testing"

func TestBeginHasTheArgumentsThatAreThere(t *testing.T) {
	const whole = "*3\r\n$3\r\nSET\r\n$2\r\nk\n\r\n$10\r\n0123456789\r\n"
	for n := range len(whole) + 1 {
		args := Begin([]byte(whole[:n]), 2)
		want := 0
		switch {
		case n >= 21:
			want = 2
		case n >= 13:
			want = 1
		}
		if len(args) != want || want > 0 && string(args[0]) != "SET" || want > 1 && string(args[1]) != "k\n" {
			t.Errorf("%q: %q", whole[:n], args)
		}
	}
}
