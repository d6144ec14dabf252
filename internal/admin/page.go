package admin

import (
	"bytes"
	_ "embed" // page.html
	"html/template"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxy/status"
)

// most bounds each table of the page.
const most = 500

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"since": func(t time.Time) time.Duration { return time.Since(t).Truncate(time.Second) },
}).Parse(pageText))

// overview is the content of the page.
type overview struct {
	status.Stats
	At         time.Time // when this was; zero: now
	Draining   bool
	ClientList []proxy.ClientStatus
	LaneList   []proxy.LaneStatus
	LockList   []proxy.LockStatus
}

// look takes locks of the proxy.
func (s *Server) look() overview {
	return overview{
		Stats: s.proxy.Stats(), Draining: s.proxy.Draining(),
		ClientList: s.proxy.Clients(most), LaneList: s.proxy.Lanes(), LockList: s.proxy.Locks(most),
	}
}

// page shows the present state of the proxy. It names no owners, because the name of an owner is enough to release its locks.
func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	view, at, fresh := s.overview.get(answerLimit)
	switch {
	case at.IsZero():
		reply(w, http.StatusServiceUnavailable, "the proxy has not answered within "+answerLimit.String())
		return
	case !fresh:
		view.At = at
	}
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, view); err != nil {
		s.log.Error("BUG: page", zap.Error(err))
		reply(w, http.StatusInternalServerError, "the page could not be made")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	_, _ = w.Write(b.Bytes()) // the client may be gone
}
