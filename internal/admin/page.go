package admin

import (
	"embed"
	"net/http"
)

// The status page is one document with its style and script. The script asks for the content as JSON.
//
// The page needs nothing from elsewhere and allows nothing: its content security policy forbids scripts, styles, images
// and requests of any other origin, and scripts and styles within the document. The names of keys and clients are set
// as text only.
//
//go:embed page.html page.css page.js icon.svg
var files embed.FS

// policy is the content security policy of the document.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// servePage has the page served at the root.
func servePage(mux *http.ServeMux) {
	for path, file := range map[string]struct{ name, kind string }{
		"/{$}": {"page.html", "text/html; charset=utf-8"}, "/page.css": {"page.css", "text/css; charset=utf-8"},
		"/page.js": {"page.js", "text/javascript; charset=utf-8"}, "/icon.svg": {"icon.svg", "image/svg+xml"},
		"/favicon.ico": {"icon.svg", "image/svg+xml"}, // browsers ask for it beside a JSON document
	} {
		text, err := files.ReadFile(file.name)
		if err != nil {
			panic("BUG: " + err.Error()) // it is embedded
		}
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Set("Content-Type", file.kind)
			h.Set("Content-Security-Policy", policy)
			h.Set("X-Content-Type-Options", "nosniff")
			h.Set("Referrer-Policy", "no-referrer")
			h.Set("Cross-Origin-Opener-Policy", "same-origin")
			h.Set("Cross-Origin-Resource-Policy", "same-origin")
			h.Set("Cache-Control", "no-cache")
			_, _ = w.Write(text) // the client may be gone
		})
	}
}
