// Command demo plays a deal of each algorithm against a running deployment with `fairpactctl smoke`,
// and prints each successful request with its answer. `make demo` runs it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: demo FAIRPACTCTL BASE_URL")
		os.Exit(2)
	}
	if err := play(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// play runs fairpactctl against a proxy that prints what passes.
func play(fairpactctl, base string) error {
	target, err := url.Parse(base)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(listener, proxy(target, os.Stderr)) }()                                                    // #nosec G114 -- for one local client
	command := exec.Command(fairpactctl, "smoke", "--algorithm", "all", "--base-url", "http://"+listener.Addr().String()) // #nosec G204 -- from the Makefile
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	return command.Run()
}

type sentBody struct{}

func proxy(target *url.URL, out io.Writer) http.Handler {
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Accept-Encoding")
		},
		ModifyResponse: func(r *http.Response) error {
			answer, err := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(answer))
			if err == nil && r.StatusCode < 300 {
				sent, _ := r.Request.Context().Value(sentBody{}).([]byte)
				show(out, r.Request, sent, r.StatusCode, answer)
			}
			return err
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(sent))
		forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), sentBody{}, sent)))
	})
}

func show(out io.Writer, r *http.Request, sent []byte, status int, answer []byte) {
	request := "> " + r.Method + " " + r.URL.RequestURI()
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		request += "   Authorization: Bearer " + strings.Trim(shortened([]byte(`"`+token+`"`), ""), `"`)
	}
	if body := bytes.TrimSpace(sent); len(body) > 2 { // more than {}
		request += "\n> " + shortened(body, "  ")
	}
	fmt.Fprintf(out, "%s\n< %d %s\n\n", request, status, shortened(answer, "  "))
}

// width is the line length in characters above which layout breaks an object or
// array into several lines.
const width = 112

var (
	// opaque matches hashes, signatures, salts, tokens and keys, and captures the start of each.
	opaque = regexp.MustCompile(`"((?:sha256:|es256:|ed25519:)?[0-9a-f]{8})[0-9a-f]{24,}"|"((?:fp|it)_[0-9A-Za-z_-]{6})[0-9A-Za-z_-]{20,}"`)
	// longText matches a string of more than about 70 characters and captures its start, up
	// to the end of a word.
	longText = regexp.MustCompile(`"([^"\\]{60,72}) [^"\\]{12,}"`)
)

// shortened cuts hashes, credentials and long texts in JSON, and breaks JSON that does not fit on one line.
func shortened(text []byte, indent string) string {
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return strconv.QuoteToGraphic(string(text))
	}
	short := opaque.ReplaceAll(compact.Bytes(), []byte(`"$1$2…"`))
	return layout(longText.ReplaceAll(short, []byte(`"$1 …"`)), indent)
}

// layout breaks an object or array that does not fit into width: one line for each member, in order.
func layout(text []byte, indent string) string {
	if utf8.RuneCount(text) <= width-2*len(indent) || (text[0] != '{' && text[0] != '[') {
		return string(text)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	open, _ := decoder.Token()
	inner := indent + "  "
	var lines []string
	for decoder.More() {
		name := ""
		if open == json.Delim('{') {
			key, _ := decoder.Token()
			name = fmt.Sprintf("%q: ", key)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return string(text)
		}
		lines = append(lines, inner+name+layout(value, inner))
	}
	closing := map[json.Delim]string{'{': "}", '[': "]"}[open.(json.Delim)]
	return fmt.Sprintf("%s\n%s\n%s%s", open, strings.Join(lines, ",\n"), indent, closing)
}
