package api

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// liar is a relay that answers for every round with another round's value, which
// is well-formed and verifies for that one alone.
func liar(t testing.TB, relay string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		chain := r.URL.Path[:65]
		resp, err := http.Get(relay + chain + "/public/7")
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		var value map[string]any
		if err == nil {
			err = json.Unmarshal(text, &value)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		value["round"] = json.RawMessage(r.URL.Path[len(chain)+len("/public/"):])
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(value)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
