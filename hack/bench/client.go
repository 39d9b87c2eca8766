package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// client sends HTTP requests one after another over one keep-alive connection, and accepts
// gzip. It replaces http.Client, because http.Client needs much more CPU and the load
// generator shares the cores with the services. A client is not safe for concurrent use.
type client struct {
	host    string // host:port
	conn    net.Conn
	in      *bufio.Reader
	out     bytes.Buffer
	inflate *gzip.Reader
}

const answerBound = 60 * time.Second

func newClient(baseURL string) *client {
	u, err := url.Parse(baseURL)
	if err != nil {
		panic(err) // cannot happen: baseURL is the URL of a process that the benchmark started
	}
	return &client{host: u.Host}
}

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// call sends `body` as JSON, or no body if `body` is nil. It decodes the answer into `into`,
// unless `into` is nil. The error is a *statusError if the status is not `want`.
func (c *client) call(want int, method, path, token string, body, into any) ([]byte, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	status, answer, err := c.send(method, path, token, text)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if status != want {
		return answer, &statusError{method, path, status, want, answer}
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			return answer, fmt.Errorf("%s %s: cannot decode the answer: %w", method, path, err)
		}
	}
	return answer, nil
}

type statusError struct {
	method, path string
	status, want int
	answer       []byte
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s %s answered %d, want %d: %.300s", e.method, e.path, e.status, e.want, e.answer)
}

func (c *client) send(method, path, token string, body []byte) (int, []byte, error) {
	if c.conn == nil {
		conn, err := net.DialTimeout("tcp4", c.host, answerBound)
		if err != nil {
			return 0, nil, err
		}
		c.conn, c.in = conn, bufio.NewReader(conn)
	}
	status, answer, err := c.exchange(method, path, token, body)
	if err != nil {
		c.close()
	}
	return status, answer, err
}

func (c *client) exchange(method, path, token string, body []byte) (int, []byte, error) {
	c.out.Reset()
	fmt.Fprintf(&c.out, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: fairpact-bench\r\nAccept-Encoding: gzip\r\n", method, path, c.host)
	if token != "" {
		fmt.Fprintf(&c.out, "Authorization: Bearer %s\r\n", token)
	}
	if method == http.MethodPost {
		fmt.Fprintf(&c.out, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	c.out.WriteString("\r\n")
	c.out.Write(body)
	if err := c.conn.SetDeadline(time.Now().Add(answerBound)); err != nil {
		return 0, nil, err
	}
	if _, err := c.conn.Write(c.out.Bytes()); err != nil {
		return 0, nil, err
	}
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, nil, err
	}
	answer, err := c.read(response)
	if err == nil && response.Close {
		c.close()
	}
	return response.StatusCode, answer, err
}

func (c *client) read(response *http.Response) ([]byte, error) {
	defer response.Body.Close()
	if response.Header.Get("Content-Encoding") != "gzip" {
		return io.ReadAll(response.Body)
	}
	var err error
	if c.inflate == nil {
		c.inflate, err = gzip.NewReader(response.Body)
	} else {
		err = c.inflate.Reset(response.Body)
	}
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(c.inflate)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, response.Body) // otherwise the connection could not be reused
	return answer, err
}
