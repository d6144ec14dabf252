package script

// This file has the calls about permits of a lock that at most n hold at the same time. Their answers are those of the
// other kinds. The keys of such a lock are a type of their own: a call about a key of another type is refused with
// WRONGTYPE, and so is a call of the other kinds about a key with permits.

// permit is the name of the permit that an acquire takes. It never comes back.
func (p Part) permit() string { return p.Owner + "#" + p.Name }

// LimitCall is the call of acquire_limit, for a Limit that is not 0.
func (a Attempt) LimitCall() Call {
	return acquireLimit.of(a.Key,
		"permit", a.permit(), "lease", millis(a.Lease), "limit", itoa(int64(a.Limit)), "named", flag(a.named()),
		"wait", millis(a.Wait), "place", a.Place, "way", string(a.Way), "stays", flag(a.Stays),
		"enqueue", flag(a.Enqueue))
}

// LimitCall is the call of handover_limit, for waiters whose Limit is not 0.
func (h HandOver) LimitCall() Call {
	all := []string{
		"owner", h.Owner, "fence", itoa(h.Fence), "wait", millis(h.Wait), "crowd", PlaceOf(h.Key, h.Crowd),
		"stays", flag(h.Stays),
	}
	if w := h.Plain; w != nil {
		all = append(all, "plain_permit", w.permit(), "plain_lease", millis(w.Lease),
			"plain_limit", itoa(int64(w.Limit)), "plain_named", flag(w.named()))
	}
	if w := h.Fair; w != nil {
		all = append(all, "fair_permit", w.permit(), "fair_lease", millis(w.Lease),
			"fair_limit", itoa(int64(w.Limit)), "fair_named", flag(w.named()), "fair_place", h.FairPlace)
	}
	return handoverLimit.of(h.Key, all...)
}

// LimitCall is the call of lease_limit that ends a permit: that with the fence, or the oldest of a named owner.
func (r Release) LimitCall() Call { return r.leaseLimit(r.Key, "", 0, false) }

// LimitCall is the call of lease_limit that sets a lease.
func (x Extend) LimitCall() Call { return x.leaseLimit(x.Key, "", milliseconds(x.Lease), false) }

// LimitCall is the call of lease_limit that drops the permit with the fence, or that of the acquire.
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
	return leaseLimit.of(key,
		"owner", p.Owner, "fence", itoa(p.Fence), "permit", permit, "lease", itoa(lease), "drop", flag(drop), "by", by)
}

// LimitCall is the call of renew_limit.
func (r Renew) LimitCall() Call {
	places := make(map[string]string, 1)
	c := renewLimit.of("")
	for _, one := range r.Renewals {
		if places[one.Key] == "" {
			places[one.Key] = itoa(int64(len(places) + 1))
			c.Keys = appendKeys(c.Keys, c.keys.row, one.Key, "")
		}
	}
	for _, one := range r.Renewals {
		c.Args = c.appendRow(c.Args, "nth", places[one.Key], "owner", one.Owner, "fence", itoa(one.Fence),
			"lease", millis(one.Lease), "note", one.note())
	}
	return c
}

// LimitCall is the call of prove_limit.
func (p Prove) LimitCall() Call {
	return proveLimit.of(p.Key, "permit", p.permit(), "fence", itoa(p.Fence))
}
