package outage

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

func logged(t testing.TB, stack *localstack.Stack, name string) (lines []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(stack.Log(name))
	e2e.Must(t, err)
	for line := range strings.Lines(string(text)) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("%s logs %.300q, want a JSON object", name, line)
		}
		lines = append(lines, fields)
	}
	return lines
}

// One trace shows a reveal from the client's call to the append in log-server. Another trace shows
// a missed deadline that the worker processes. deal-api and log-server log the reveal with its
// request ID. No span shows a secret.
func TestTraces(t *testing.T) {
	t.Parallel()
	col := e2e.NewCollector(t)
	stack := e2e.Own(t, func(o *localstack.Options) { o.Env[""] = append(o.Env[""], col.Environment()...) })
	c := e2e.NewClient(t, stack.BaseURL())
	late := e2e.Played(t, c, e2e.MissedCommit).Deal
	const id, stranger = "3f2b9c1e-last-reveal", "0af7651916cd43dd8448eb211c80319c"
	secrets := []e2e.Marker{{Name: "input", Text: "8237461928374651"}, {Name: "input", Text: "7237461928374651"}}
	ended := func() *e2e.CreatedDeal {
		d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
		secrets = append(secrets, e2e.Marker{Name: "API key", Text: d.Key}, e2e.Marker{Name: "token", Text: d.Tokens[0]}, e2e.Marker{Name: "token", Text: d.Tokens[1]})
		inputs := []e2e.Sealed{e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"car": 8237461928374651}}), e2e.Seal(t, e2e.Body{"valuations": e2e.Body{"boat": 7237461928374651}})}
		for p, in := range inputs {
			secrets = append(secrets, e2e.Marker{Name: "salt", Text: in.Salt})
			d.Commit(p, in)
		}
		d.Reveal(0, inputs[0])
		a := c.Want(200, "POST", d.Path("/reveal"), d.Tokens[1], inputs[1].Act("reveal"),
			"X-Request-Id", id, "Traceparent", "00-"+stranger+"-b7ad6b7169203331-01", "Tracestate", "vendor="+d.Tokens[1])
		if answered := a.Header.Get("X-Request-Id"); answered != id {
			t.Errorf("the answer has X-Request-Id %q, want %q", answered, id)
		}
		return d
	}
	// A reveal tries for at most 3 s to issue its certificate. After that, the worker issues the
	// certificate. On a busy machine, the test may need several deals.
	var d *e2e.CreatedDeal
	e2e.Eventually(t, "a reveal whose certificate is issued within it", e2e.DefaultTimeout, func() bool {
		d = ended()
		return col.IssuedWithin(d.ID, stranger)
	})
	d.Certified(e2e.DefaultTimeout)
	c.Want(200, "POST", "/mcp", "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_algorithms","arguments":{}}}`)
	c.Want(200, "GET", "/v1/log/tree-head", "", nil)

	of := func(deal string) func(e2e.Span) bool {
		return func(s e2e.Span) bool { return s.Attr["fairpact.deal_id"] == deal }
	}
	reveal := col.Whole("the trace of the last reveal", of(d.ID), "deal-api: POST /v1/deals/{id}/reveal", "deal-api: grouped statement", "deal-api: Postgres",
		"deal-api: sign", "deal-api: POST /v1/append", "log-server: POST /v1/append", "log-server: Postgres")
	if reveal.Name != "POST /v1/deals/{id}/reveal" || len(reveal.Links) != 1 || hex.EncodeToString(reveal.Links[0].TraceId) != stranger {
		t.Errorf("the root is %v, want a reveal with a link to the caller's trace", reveal)
	}
	col.Whole("the trace of a missed deadline", of(late.ID), "deadline-worker: reconcile deal", "deadline-worker: Postgres",
		"deadline-worker: sign", "deadline-worker: POST /v1/append", "log-server: POST /v1/append")
	col.Whole("the trace of a head", func(s e2e.Span) bool { return s.Name == "publish head" && len(s.ParentSpanId) > 0 }, "log-server: sign", "log-server: POST /v1/append")
	col.Whole("the trace of a tool call", func(s e2e.Span) bool { return s.Name == "POST /mcp" }, "deal-api: tools/call list_algorithms")
	reads := func(service string) func(e2e.Span) bool {
		return func(s e2e.Span) bool {
			return s.Service == service && s.Name == "GET /v1/log/tree-head" && s.Kind == tracepb.Span_SPAN_KIND_SERVER
		}
	}
	e2e.Eventually(t, "a read of the log's public port has a link to its caller's trace", e2e.DefaultTimeout, func() bool {
		return slices.ContainsFunc(col.Find(reads("log-server")), func(read e2e.Span) bool {
			return len(read.ParentSpanId) == 0 && len(read.Links) == 1 && slices.ContainsFunc(col.Find(reads("deal-api")), func(caller e2e.Span) bool {
				return bytes.Equal(caller.TraceId, read.Links[0].TraceId)
			})
		})
	})
	for _, s := range col.Find(func(s e2e.Span) bool { return len(s.ParentSpanId) == 0 && s.Attr["db.system.name"] != "" }) {
		t.Errorf("a statement is the root of a trace: %v", s)
	}
	shown := e2e.Shown(append(secrets, e2e.Marker{Name: "deal", Text: d.ID}), map[string][]byte{"traces": col.Raw()})
	for i, m := range secrets {
		if shown[i] != nil {
			t.Errorf("a span contains the %s", m.Name)
		}
	}
	if shown[len(secrets)] == nil {
		t.Error("the search for secrets does not find the deal's id: the search is broken")
	}

	e2e.Eventually(t, "log lines of the reveal in both binaries", e2e.DefaultTimeout, func() bool {
		api := slices.ContainsFunc(logged(t, stack, localstack.DealAPI), func(line map[string]any) bool {
			return line["msg"] == "deal ended" && line["request_id"] == id && line["deal_id"] == d.ID && line["trace_id"] == reveal.Trace()
		})
		return api && slices.ContainsFunc(logged(t, stack, localstack.LogServer), func(line map[string]any) bool {
			return line["route"] == "/v1/append" && line["request_id"] == id && line["deal_id"] == nil && line["trace_id"] == reveal.Trace()
		})
	})
	if !slices.ContainsFunc(logged(t, stack, localstack.DeadlineWorker), func(line map[string]any) bool {
		return line["msg"] == "deal ended" && line["deal_id"] == late.ID && line["request_id"] != nil && line["trace_id"] != nil
	}) {
		t.Error("the worker does not log the missed deadline with its deal, request and trace")
	}
	collectorHangs(t, stack, col)
}

// collectorHangs requires that deal-api sends its buffered spans before it exits. A collector that
// hangs must delay neither a call nor a stop.
func collectorHangs(t *testing.T, stack *localstack.Stack, col *e2e.Collector) {
	t.Helper()
	c := e2e.NewClient(t, stack.BaseURL())
	e2e.Must(t, stack.Restart(t.Context(), localstack.DealAPI, append(col.Environment(), "OTEL_BSP_SCHEDULE_DELAY=3600000")...))
	c.Want(200, "GET", "/v1/algorithms", "", nil)
	e2e.Must(t, stack.Stop(localstack.DealAPI))
	if len(col.Find(func(s e2e.Span) bool { return s.Name == "GET /v1/algorithms" })) != 1 {
		t.Error("the buffered span was not sent at the stop")
	}

	hangs, err := net.Listen("tcp", "127.0.0.1:0") // the test never accepts a connection, so an exporter gets no answer
	e2e.Must(t, err)
	defer hangs.Close()
	e2e.Must(t, stack.Start(t.Context(), localstack.DealAPI, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+hangs.Addr().String(), "OTEL_BSP_SCHEDULE_DELAY=1"))
	d := c.Create(e2e.SplitBody(time.Hour, 2*time.Hour))
	d.Play(e2e.Body{"valuations": e2e.Body{"car": 1}}, e2e.Body{"valuations": e2e.Body{"boat": 1}})
	d.Certified(e2e.DefaultTimeout)
	began := time.Now()
	if err := stack.Stop(localstack.DealAPI); err != nil {
		t.Errorf("stop deal-api with a collector that hangs: %v", err)
	}
	t.Logf("a stop takes %s with a collector that hangs", time.Since(began))
	if lines := logged(t, stack, localstack.DealAPI); !slices.ContainsFunc(lines, func(line map[string]any) bool { return line["msg"] == "the last traces are lost" }) {
		t.Error("the process does not log that traces were lost")
	}
}
