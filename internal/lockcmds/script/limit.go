package script

// This file has the calls about permits of a lock that at most n hold at the same time. Their answers are those of the
// other kinds. The keys of such a lock are a type of their own: a call about a key of another type is refused with
// WRONGTYPE, and so is a call of the other kinds about a key with permits.

// permit is the name of the permit that an acquire takes. It never comes back.
func (p Part) permit() string { return p.Owner + "#" + p.Name }

// LimitCall is the call of acquire_limit.lua, for a Limit that is not 0.
func (a Shared) LimitCall() Call {
	return Call{acquireLimit, limitKeys(a.Key, 8), []string{
		a.permit(), millis(a.Lease), itoa(int64(a.Limit)), flag(a.named()), millis(a.Wait), a.Place, string(a.Way),
		flag(a.Stays), flag(a.Enqueue), publish,
	}}
}

// LimitCall is the call of handover_limit.lua, for waiters whose Limit is not 0.
func (h HandOver) LimitCall() Call {
	n := Names{Lock: h.Key}
	args := make([]string, 0, 15) // for two waiters
	args = append(args, h.Owner, itoa(h.Fence), publish, millis(h.Wait), n.PlaceOf(h.Crowd), flag(h.Stays))
	for _, w := range []*Acquire{h.Plain, h.Fair} {
		switch {
		case w != nil:
			args = append(args, w.permit(), millis(w.Lease), itoa(int64(w.Limit)), flag(w.named()))
		case w == h.Plain:
			args = append(args, "", "", "", "")
		}
	}
	if h.Fair != nil {
		args = append(args, h.FairPlace)
	}
	return Call{handoverLimit, limitKeys(h.Key, 8), args}
}

// LimitCall is the call of lease_limit.lua that ends a permit: that with the fence, or the oldest of a named owner.
func (r Release) LimitCall() Call { return r.leaseLimit(r.Key, "", 0, false) }

// LimitCall is the call of lease_limit.lua that sets a lease.
func (x Extend) LimitCall() Call { return x.leaseLimit(x.Key, "", milliseconds(x.Lease), false) }

// LimitCall is the call of lease_limit.lua that drops the permit with the fence, or that of the acquire.
func (d Drop) LimitCall() Call {
	permit := ""
	if d.Fence == 0 {
		permit = d.permit()
	}
	return d.leaseLimit(d.Key, permit, milliseconds(d.Keep), true)
}

func (p Part) leaseLimit(key, permit string, lease int64, drop bool) Call {
	by := p.Session
	if IsDefault(p.Owner) { // who names its fence acts for the session that took it
		by = ""
	}
	return Call{leaseLimit, limitKeys(key, 6), []string{
		p.Owner, itoa(p.Fence), permit, itoa(lease), flag(drop), by, publish,
	}}
}

// LimitCall is the call of renew_limit.lua.
func (r Renew) LimitCall() Call {
	places := make(map[string]string, 1)
	var keys []string
	args := make([]string, 0, 5*len(r.Renewals))
	for _, one := range r.Renewals {
		if places[one.Key] == "" {
			places[one.Key] = itoa(int64(len(places) + 1))
			keys = append(keys, limitKeys(one.Key, 4)...)
		}
		args = append(args, places[one.Key], one.Owner, itoa(one.Fence), millis(one.Lease), one.note())
	}
	return Call{renewLimit, keys, args}
}

// LimitCall is the call of prove_limit.lua.
func (p Prove) LimitCall() Call {
	return Call{proveLimit, limitKeys(p.Key, 4), []string{p.permit(), itoa(p.Fence)}}
}

// limitKeys are the first n keys of the scripts about permits.
func limitKeys(key string, n int) []string {
	keys := appendPermits(append(make([]string, 0, n), key), key)
	if n == len(keys) {
		return keys
	}
	names := Of(key)
	return append(keys, names.Channel, names.Queue, names.Deadlines, names.Fence)[:n:n]
}
