package httpapi

import (
	"net/http"

	"github.com/fairpact/fairpact/internal/httpcache"
)

// shared and owned make a read cheap to repeat: a tag, 304 for who has the same
// bytes, gzip where they are many. Any cache may keep what is shared; what a
// credential opens only its owner's. Neither is for an answer that shows a
// credential or an input, whose compressed size would tell of it beside text
// that another party chose: those are no-store and plain.
func shared(next http.HandlerFunc) http.HandlerFunc {
	return httpcache.Handler(httpcache.Public, next)
}

func owned(next http.HandlerFunc) http.HandlerFunc {
	return httpcache.Handler(httpcache.Private, next)
}
