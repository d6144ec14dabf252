package admin

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// get is the answer to a request.
func get(mux *http.ServeMux, path string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
	return answer
}

var (
	reference = regexp.MustCompile(`(?: src|<link rel="\w+" href)="([^"]*)"`)
	inline    = regexp.MustCompile(`<style|<script>| style=| on[a-z]+=`)
)

// The document needs nothing but what is served beside it, and nothing that its own policy forbids.
func TestTheDocumentIsComplete(t *testing.T) {
	mux := http.NewServeMux()
	servePage(mux)
	document := get(mux, "/").Body.String()
	if found := inline.FindAllString(document, -1); found != nil {
		t.Errorf("the policy forbids %q", found)
	}
	found := reference.FindAllStringSubmatch(document, -1)
	if len(found) < 3 {
		t.Errorf("the document refers to %q only", found)
	}
	for _, match := range append(found, []string{"", "/favicon.ico"}) {
		path := "/" + strings.TrimPrefix(match[1], "/")
		if answer := get(mux, path); answer.Code != http.StatusOK || answer.Body.Len() == 0 {
			t.Errorf("%s is answered with %d", path, answer.Code)
		} else if h := answer.Header(); h.Get("Content-Security-Policy") != policy || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s is served with %v", path, h)
		}
	}
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'none'"} {
		if !strings.Contains(policy, want) || strings.Contains(policy, "unsafe") {
			t.Errorf("%q has no %s", policy, want)
		}
	}
	for path, kind := range map[string]string{"/": "text/html", "/page.css": "text/css", "/page.js": "text/javascript", "/favicon.ico": "image/svg+xml"} {
		if got := get(mux, path).Header().Get("Content-Type"); !strings.HasPrefix(got, kind) {
			t.Errorf("%s is %s", path, got)
		}
		text := strings.ReplaceAll(get(mux, path).Body.String(), "http://www.w3.org/2000/svg", "")
		if strings.Contains(text, "http") || strings.Contains(text, "//cdn") || strings.Contains(text, "innerHTML") {
			t.Errorf("%s asks for something elsewhere, or writes markup", path)
		}
	}
	if answer := get(mux, "/page.html"); answer.Code != http.StatusNotFound { // the document has one address
		t.Errorf("/page.html is answered with %d", answer.Code)
	}
}
