package admin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/lockproxy/lockproxy/internal/proxy"
)

// A page on the web must not be able to end locks by the browser of an operator. So such a request must come from the
// same origin as far as the browser tells it (http.CrossOriginProtection), carry JSON, which no form can send, and have
// a token that only a reader of /locks knows.

// tokenHeader has the token of a request that changes something.
const tokenHeader = "X-Lockproxy-Token"

// maxForce bounds the body of a request: a key of 4 MB is a long one.
const maxForce = 4 << 20

// newToken makes a token for the life of the process.
func newToken() string { return rand.Text() }

// forceRequest names the lock to end.
type forceRequest struct {
	Key       string `json:"key"`
	KeyBase64 string `json:"key_base64"` // in place of Key, if that is not UTF-8
	Database  int    `json:"database"`
	User      string `json:"user"`
	Fence     *int64 `json:"fence"` // of the grant that is meant: no later one is ended; 0: one without a fence
}

// forceAnswer is the outcome.
type forceAnswer struct {
	Ended bool `json:"ended"` // false: the lock is free, or another grant holds it
}

// forceUnlock ends a lock.
func (s *Server) forceUnlock(w http.ResponseWriter, r *http.Request) {
	if subtle.ConstantTimeCompare([]byte(r.Header.Get(tokenHeader)), []byte(s.token)) != 1 {
		reply(w, http.StatusForbidden, "the token is missing or old: load the page again")
		return
	}
	if r.Header.Get("Content-Type") != "application/json" {
		reply(w, http.StatusUnsupportedMediaType, "the request is not application/json")
		return
	}
	var f forceRequest
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxForce))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		reply(w, http.StatusBadRequest, err.Error())
		return
	}
	if f.KeyBase64 != "" {
		key, err := base64.StdEncoding.DecodeString(f.KeyBase64)
		if err != nil {
			reply(w, http.StatusBadRequest, "key_base64: "+err.Error())
			return
		}
		f.Key = string(key)
	}
	if f.Key == "" || f.Fence == nil || *f.Fence < 0 {
		reply(w, http.StatusBadRequest, "no key, or no fence")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), forceLimit)
	defer cancel()
	ended, err := s.proxy.ForceUnlock(ctx, f.User, f.Database, f.Key, *f.Fence, r.RemoteAddr)
	switch {
	case errors.Is(err, proxy.ErrUnknownIdentity):
		reply(w, http.StatusNotFound, err.Error())
	case err != nil:
		reply(w, http.StatusBadGateway, err.Error())
	default:
		document(w, forceAnswer{ended})
	}
}
