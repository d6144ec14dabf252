package cli

import (
	"cmp"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// Target is the address of a proxy, and the user that the client is there.
type Target struct {
	Network, Addr  string      // tcp or unix
	Header         bool        // a PROXY header comes first
	TLS            *tls.Config // nil: in the clear
	User, Password string
	DB             int
}

// defaultPort is that of the proxy's setting listen.
const defaultPort = "7379"

// parseTarget reads an address in the form of other Redis tools: redis://user:password@host:port/db, rediss:// for TLS,
// unix://user:password@/path?db=n. A bare host:port is an address too. No error quotes it: any part of a
// URL with a mistake may be the password.
func parseTarget(text string) (Target, error) {
	if !strings.Contains(text, "://") {
		text = "redis://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return Target{}, errors.New("the address is no URL such as redis://127.0.0.1:7379")
	}
	address := net.JoinHostPort(cmp.Or(u.Hostname(), "127.0.0.1"), cmp.Or(u.Port(), defaultPort))
	t := Target{Network: "tcp", Addr: address, User: u.User.Username()}
	t.Password, _ = u.User.Password()
	db := strings.Trim(u.Path, "/")
	switch u.Scheme {
	case "redis":
	case "rediss":
		t.TLS = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	case "unix":
		t.Network, t.Addr, db = "unix", u.Path, ""
	default:
		return Target{}, errors.New("the address begins with none of redis://, rediss:// and unix://")
	}
	db = cmp.Or(u.Query().Get("db"), db)
	if t.DB, err = strconv.Atoi(cmp.Or(db, "0")); err != nil || t.DB < 0 {
		return Target{}, errors.New("the database of the address, which stands behind the host and a slash, is not a number")
	}
	return t, nil
}
