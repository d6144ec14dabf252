package script

import "testing"

func TestNamesAreRedissons(t *testing.T) {
	for _, c := range []struct{ key, channel, queue, deadlines string }{
		{"foo", "redisson_lock__channel:{foo}", "redisson_lock_queue:{foo}", "redisson_lock_timeout:{foo}"},
		{"{a}b", "redisson_lock__channel:{a}b", "redisson_lock_queue:{a}b", "redisson_lock_timeout:{a}b"},
		{"x{a}y{b}", "redisson_lock__channel:x{a}y{b}", "redisson_lock_queue:x{a}y{b}", "redisson_lock_timeout:x{a}y{b}"},
	} {
		n := Of(c.key)
		if n.Channel != c.channel || n.Queue != c.queue || n.Deadlines != c.deadlines || n.Fence != "lockproxy:fence" || n.Lock != c.key {
			t.Errorf("%s: %+v", c.key, n)
		}
	}
}
