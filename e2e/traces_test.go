package e2e

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collected "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/fairpact/fairpact/internal/localstack"
)

// collector takes spans as an OTLP/HTTP collector does.
type collector struct {
	t    testing.TB
	http *httptest.Server

	mu    sync.Mutex
	raw   bytes.Buffer
	spans []span
}

// span is a span, with the texts of its attributes by name.
type span struct {
	*tracepb.Span
	service string
	attr    map[string]string
}

func (s span) trace() string { return hex.EncodeToString(s.TraceId) }

func newCollector(t testing.TB) *collector {
	c := &collector{t: t}
	c.http = httptest.NewServer(c)
	t.Cleanup(c.http.Close)
	return c
}

// environment makes every binary send its spans here, soon.
func (c *collector) environment() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.http.URL, "OTEL_BSP_SCHEDULE_DELAY=100"}
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	var sent collected.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(text, &sent)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		c.t.Errorf("a collector is sent %s, %d bytes: %v", r.URL.Path, len(text), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(text)
	for _, resource := range sent.ResourceSpans {
		service := ""
		for _, a := range resource.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				attr := map[string]string{}
				for _, a := range s.Attributes {
					attr[a.Key] = a.Value.GetStringValue()
				}
				c.spans = append(c.spans, span{s, service, attr})
			}
		}
	}
}

// place is all that was ever sent.
func (c *collector) place() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.raw.Bytes())
}

func (c *collector) find(fits func(span) bool) (found []span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if fits(s) {
			found = append(found, s)
		}
	}
	return found
}

// whole waits for a trace that has all these spans, each "service: name", and
// gives its root.
func (c *collector) whole(what string, fits func(span) bool, want ...string) (root span) {
	c.t.Helper()
	var shown []string
	eventually(c.t, what, patience, func() bool {
		for _, one := range c.find(fits) {
			shown = shown[:0]
			ids := map[string]bool{}
			members := c.find(func(s span) bool { return s.trace() == one.trace() })
			for _, s := range members {
				ids[string(s.SpanId)] = true
				name := s.service + ": " + s.Name
				if s.attr["db.system.name"] == "postgresql" {
					name = s.service + ": Postgres"
				}
				shown = append(shown, name)
			}
			roots := slices.DeleteFunc(members, func(s span) bool { return ids[string(s.ParentSpanId)] })
			if len(roots) == 1 && len(roots[0].ParentSpanId) == 0 && !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(shown, w) }) {
				root = roots[0]
				return true
			}
		}
		return false
	})
	c.t.Logf("%s: %q", what, shown)
	return root
}

// issuedWithin waits for the span of the reveal that is linked to the caller's
// trace, which is sent after all that was done in it, and tells whether the
// certificate was signed there and came into the log.
func (c *collector) issuedWithin(deal, caller string) bool {
	c.t.Helper()
	var reveal []span
	eventually(c.t, "the span of the last reveal", patience, func() bool {
		reveal = c.find(func(s span) bool {
			return s.attr["fairpact.deal_id"] == deal && s.service == localstack.DealAPI && len(s.Links) == 1 && hex.EncodeToString(s.Links[0].TraceId) == caller
		})
		return len(reveal) > 0
	})
	did := func(name string) bool {
		return len(c.find(func(s span) bool {
			return s.trace() == reveal[0].trace() && s.service == localstack.DealAPI && s.Name == name && s.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR
		})) > 0
	}
	return did("sign") && did("POST /v1/append")
}

// logged is the lines of a process's log, each of which is a JSON object.
func logged(t testing.TB, stack *localstack.Stack, name string) (lines []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(stack.Log(name))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("%s logs %.300q, which is no JSON object", name, line)
		}
		lines = append(lines, fields)
	}
	return lines
}

// One trace shows a reveal from the call to the log, another what the worker
// does; the log lines of both binaries bear one request id; and no span holds
// a secret.
func TestTraces(t *testing.T) {
	t.Parallel()
	col := newCollector(t)
	stack := own(t, func(o *localstack.Options) { o.Env[""] = append(o.Env[""], col.environment()...) })
	c := newClient(t, stack.BaseURL())
	late := played(t, c, missedCommit).deal
	const id, stranger = "3f2b9c1e-last-reveal", "0af7651916cd43dd8448eb211c80319c"
	secrets := []marker{{"input", "8237461928374651"}, {"input", "7237461928374651"}}
	ended := func() *dealt {
		d := c.create(splitBody(time.Hour, 2*time.Hour))
		secrets = append(secrets, marker{"API key", d.Key}, marker{"token", d.Tokens[0]}, marker{"token", d.Tokens[1]})
		inputs := []sealed{seal(t, body{"valuations": body{"car": 8237461928374651}}), seal(t, body{"valuations": body{"boat": 7237461928374651}})}
		for p, in := range inputs {
			secrets = append(secrets, marker{"salt", in.Salt})
			d.commit(p, in)
		}
		d.reveal(0, inputs[0])
		a := c.want(200, "POST", d.path("/reveal"), d.Tokens[1], inputs[1].act("reveal"),
			"X-Request-Id", id, "Traceparent", "00-"+stranger+"-b7ad6b7169203331-01", "Tracestate", "vendor="+d.Tokens[1])
		if answered := a.header.Get("X-Request-Id"); answered != id {
			t.Errorf("X-Request-Id %q is answered to %q", answered, id)
		}
		return d
	}
	// A reveal waits 3 s for its certificate, which the worker finishes otherwise:
	// a busy machine takes another deal.
	var d *dealt
	eventually(t, "a reveal whose certificate is issued within it", patience, func() bool {
		d = ended()
		return col.issuedWithin(d.ID, stranger)
	})
	d.certified(patience)
	c.want(200, "POST", "/mcp", "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_algorithms","arguments":{}}}`)
	c.want(200, "GET", "/v1/log/tree-head", "", nil)

	of := func(deal string) func(span) bool {
		return func(s span) bool { return s.attr["fairpact.deal_id"] == deal }
	}
	reveal := col.whole("the trace of the last reveal", of(d.ID), "deal-api: POST /v1/deals/{id}/reveal", "deal-api: grouped insert", "deal-api: Postgres",
		"deal-api: sign", "deal-api: POST /v1/append", "log-server: POST /v1/append", "log-server: Postgres")
	if reveal.Name != "POST /v1/deals/{id}/reveal" || len(reveal.Links) != 1 || hex.EncodeToString(reveal.Links[0].TraceId) != stranger {
		t.Errorf("the root is %v, want a reveal that is linked to its caller", reveal)
	}
	col.whole("the trace of a missed deadline", of(late.ID), "deadline-worker: reconcile deal", "deadline-worker: Postgres",
		"deadline-worker: sign", "deadline-worker: POST /v1/append", "log-server: POST /v1/append")
	col.whole("the trace of a head", func(s span) bool { return s.Name == "publish head" && len(s.ParentSpanId) > 0 }, "log-server: sign", "log-server: POST /v1/append")
	col.whole("the trace of a tool call", func(s span) bool { return s.Name == "POST /mcp" }, "deal-api: tools/call list_algorithms")
	reads := func(service string) func(span) bool {
		return func(s span) bool {
			return s.service == service && s.Name == "GET /v1/log/tree-head" && s.Kind == tracepb.Span_SPAN_KIND_SERVER
		}
	}
	eventually(t, "a read of the log, whose port is public, is linked to its caller's trace", patience, func() bool {
		return slices.ContainsFunc(col.find(reads("log-server")), func(read span) bool {
			return len(read.ParentSpanId) == 0 && len(read.Links) == 1 && slices.ContainsFunc(col.find(reads("deal-api")), func(caller span) bool {
				return bytes.Equal(caller.TraceId, read.Links[0].TraceId)
			})
		})
	})
	for _, s := range col.find(func(s span) bool { return len(s.ParentSpanId) == 0 && s.attr["db.system.name"] != "" }) {
		t.Errorf("a statement is a trace of its own: %v", s)
	}
	for _, m := range secrets {
		if m.shownIn(map[string][]byte{"traces": col.place()}) != nil {
			t.Errorf("the %s is in a span", m.name)
		}
	}
	if (marker{"", d.ID}).shownIn(map[string][]byte{"traces": col.place()}) == nil {
		t.Error("the search finds nothing")
	}

	eventually(t, "log lines of the reveal in both binaries", patience, func() bool {
		api := slices.ContainsFunc(logged(t, stack, localstack.DealAPI), func(line map[string]any) bool {
			return line["msg"] == "deal ended" && line["request_id"] == id && line["deal_id"] == d.ID && line["trace_id"] == reveal.trace()
		})
		return api && slices.ContainsFunc(logged(t, stack, localstack.LogServer), func(line map[string]any) bool {
			return line["route"] == "/v1/append" && line["request_id"] == id && line["deal_id"] == nil && line["trace_id"] == reveal.trace()
		})
	})
	if !slices.ContainsFunc(logged(t, stack, localstack.DeadlineWorker), func(line map[string]any) bool {
		return line["msg"] == "deal ended" && line["deal_id"] == late.ID && line["request_id"] != nil && line["trace_id"] != nil
	}) {
		t.Error("the worker's line of the missed deadline is not whole")
	}
}

// What waits in the process is sent when it stops, and a collector that hangs
// delays neither a call nor a stop.
func TestCollectorHangs(t *testing.T) {
	t.Parallel()
	col := newCollector(t)
	stack := own(t, nil)
	c := newClient(t, stack.BaseURL())
	if err := stack.Restart(t.Context(), localstack.DealAPI, append(col.environment(), "OTEL_BSP_SCHEDULE_DELAY=3600000")...); err != nil {
		t.Fatal(err)
	}
	c.want(200, "GET", "/v1/algorithms", "", nil)
	if err := stack.Stop(localstack.DealAPI); err != nil {
		t.Fatal(err)
	}
	if len(col.find(func(s span) bool { return s.Name == "GET /v1/algorithms" })) != 1 {
		t.Error("a stop does not send what was left")
	}

	hangs, err := net.Listen("tcp", "127.0.0.1:0") // and never accepts
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	if err := stack.Start(t.Context(), localstack.DealAPI, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+hangs.Addr().String(), "OTEL_BSP_SCHEDULE_DELAY=1"); err != nil {
		t.Fatal(err)
	}
	d := c.create(splitBody(time.Hour, 2*time.Hour))
	d.play(body{"valuations": body{"car": 1}}, body{"valuations": body{"boat": 1}})
	d.certified(patience)
	began := time.Now()
	if err := stack.Stop(localstack.DealAPI); err != nil {
		t.Error(err)
	}
	t.Logf("a stop takes %s with a collector that hangs", time.Since(began))
	if lines := logged(t, stack, localstack.DealAPI); !slices.ContainsFunc(lines, func(line map[string]any) bool { return line["msg"] == "the last traces are lost" }) {
		t.Error("lost traces are not told")
	}
}
