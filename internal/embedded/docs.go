package embedded

import (
	"bytes"
	"compress/gzip"
	_ "embed" // packedDocs
	"io"
	"sync"
)

// packedDocs is the answer of a Redis 7.0.15 to COMMAND DOCS in RESP2, packed by gzip.
//
//go:embed docs.resp.gz
var packedDocs []byte

// docs is packedDocs as Redis sends it.
var docs = sync.OnceValue(func() string {
	r, err := gzip.NewReader(bytes.NewReader(packedDocs))
	if err != nil {
		panic("BUG: stored answer to COMMAND DOCS: " + err.Error())
	}
	text, err := io.ReadAll(r)
	if err != nil {
		panic("BUG: stored answer to COMMAND DOCS: " + err.Error())
	}
	return string(text)
})
