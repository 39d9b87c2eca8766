package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// client speaks to the service and writes the conversation down.
type client struct {
	base string
	http http.Client
	out  io.Writer
}

// answer is a response: its status and its body as it came.
type answer struct {
	status int
	body   []byte
}

// call sends a request and prints both sides. A status other than want is an
// error that holds the service's own.
func (c *client) call(want int, method, path, bearer string, body any) (answer, error) {
	a, err := c.send(method, path, bearer, body)
	if err != nil {
		return a, err
	}
	c.print(method, path, bearer, body, a)
	if a.status != want {
		return a, fmt.Errorf("%s %s answered %d: %s", method, path, a.status, bytes.TrimSpace(a.body))
	}
	return a, nil
}

// callUntil repeats a request that is answered 409 for a while, and prints
// only the last.
func (c *client) callUntil(want int, method, path, bearer string) (answer, error) {
	for deadline := time.Now().Add(time.Minute); ; {
		a, err := c.send(method, path, bearer, nil)
		if err != nil {
			return a, err
		}
		if a.status == http.StatusConflict && want != a.status && time.Now().Before(deadline) {
			time.Sleep(500 * time.Millisecond)
			continue
		}
		c.print(method, path, bearer, nil, a)
		if a.status != want {
			return a, fmt.Errorf("%s %s answered %d: %s", method, path, a.status, bytes.TrimSpace(a.body))
		}
		return a, nil
	}
}

func (c *client) send(method, path, bearer string, body any) (answer, error) {
	var sent io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		sent = bytes.NewReader(encoded)
	}
	req, err := http.NewRequest(method, c.base+path, sent)
	if err != nil {
		return answer{}, err
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	return answer{resp.StatusCode, got}, err
}

func (c *client) print(method, path, bearer string, body any, a answer) {
	head := "> " + method + " " + path
	if bearer != "" {
		head += "   Authorization: Bearer " + strings.Trim(show([]byte(`"`+bearer+`"`), ""), `"`)
	}
	fmt.Fprintln(c.out, head)
	if body != nil {
		if encoded, err := json.Marshal(body); err == nil {
			fmt.Fprintln(c.out, "> "+show(encoded, "  "))
		}
	}
	fmt.Fprintf(c.out, "< %d %s\n\n", a.status, show(bytes.TrimSpace(a.body), "  "))
}

func (c *client) say(format string, args ...any) { fmt.Fprintf(c.out, format+"\n\n", args...) }
