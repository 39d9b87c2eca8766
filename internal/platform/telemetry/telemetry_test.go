package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// A caller's request id is used only if it cannot be an API key or token and cannot
// break a log line.
func TestRequestIDsOfCallersAreChecked(t *testing.T) {
	for sent, accepted := range map[string]bool{
		"a": true, "3f2b9c1e-7a10-4d55-9b1e-0c5a8f6d2e41": true, strings.Repeat("9", 36): true,
		"": false, strings.Repeat("9", 37): false, "it_abc": false, "fp_abc": false, "a b": false, "a\"b": false, "é": false, "a\n": false, "a.b": false,
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.Header[RequestIDHeader] = []string{sent}
		r, call := Begin(w, r, true)
		call.End("/", "GET", 200)
		answered, passed := w.Header().Get(RequestIDHeader), http.Header{}
		Propagate(r.Context(), passed)
		if (answered == sent) != accepted || !accepted && len(answered) != 16 || passed.Get(RequestIDHeader) != answered {
			t.Errorf("request id %q: answered %q, passed on %q; want it accepted: %v, and the same id in both", sent, answered, passed.Get(RequestIDHeader), accepted)
		}
	}
}

func TestLinesHaveTheAttributesOfTheirRequest(t *testing.T) {
	var text bytes.Buffer
	logger := slog.New(LogHandler(slog.NewJSONHandler(&text, nil)))
	NoteDeal(t.Context(), "d_x")
	logger.InfoContext(t.Context(), "x")
	ctx := WithRequestID(t.Context(), "one")
	logger.With("a", 1).InfoContext(ctx, "x")
	NoteDeal(ctx, "d_x")
	logger.InfoContext(context.WithoutCancel(ctx), "x")
	for i, line := range strings.Split(strings.TrimSpace(text.String()), "\n") {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		wantID, wantDeal := any("one"), any("d_x")
		if i == 0 {
			wantID = nil
		}
		if i < 2 {
			wantDeal = nil
		}
		if fields["request_id"] != wantID || fields["deal_id"] != wantDeal || fields["trace_id"] != nil {
			t.Errorf("line %d is %s, want request_id %v, deal_id %v and no trace_id", i, line, wantID, wantDeal)
		}
	}
}

// No caller can put free text into a span.
func TestTracesOfStrangersAreLinkedAndOurOwnJoined(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	Trace()
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	for _, outside := range []bool{true, false} {
		r := httptest.NewRequest("BREW", "/it_path?it_query", nil)
		const from = "0af7651916cd43dd8448eb211c80319c"
		r.Header.Set("Traceparent", "00-"+from+"-b7ad6b7169203331-01")
		r.Header.Set("Tracestate", "vendor=it_state")
		r, call := Begin(httptest.NewRecorder(), r, outside)
		NoteDeal(r.Context(), "d_x")
		call.End("", r.Method, 503)
		ended := spans.Ended()
		span := ended[len(ended)-1]
		joined := span.SpanContext().TraceID().String() == from
		if joined == outside || (len(span.Links()) == 1) != outside {
			t.Errorf("outside %v: joined %v, links %v; want joined %v, and a link only from outside", outside, joined, span.Links(), !outside)
		}
		text, err := json.Marshal(tracetest.SpanStubFromReadOnlySpan(span))
		if err != nil {
			t.Fatal(err)
		}
		if span.Name() != "other other" || strings.Contains(string(text), "it_") || strings.Contains(string(text), "BREW") || !strings.Contains(string(text), "d_x") {
			t.Errorf("the span %q is %s, want \"other other\" with d_x and without the caller's texts", span.Name(), text)
		}
		passed := http.Header{}
		Propagate(r.Context(), passed)
		if !strings.Contains(passed.Get("Traceparent"), span.SpanContext().TraceID().String()) || passed.Get("Tracestate") != "" {
			t.Errorf("passed on: %v, want a Traceparent of the span and no Tracestate", passed)
		}
	}
}

func TestTookDoesNotCountWaits(t *testing.T) {
	began := time.Now().Add(-time.Minute)
	ctx := WithRequestID(t.Context(), "id")
	NoteWait(ctx, 40*time.Second)
	NoteWait(ctx, 15*time.Second)
	if took := Took(ctx, began); took < 5*time.Second || took >= 15*time.Second {
		t.Errorf("Took a minute with waits of 55 s = %s, want 5 to 15 s", took)
	}
	NoteWait(t.Context(), time.Hour) // no effect, because this context does not come from WithRequestID
	if took := Took(t.Context(), began); took < time.Minute {
		t.Errorf("Took without work = %s, want at least a minute", took)
	}
}

// An operator learns from the log that a server is away, and why, once for each change.
func TestServersThatDoNotAnswerAreLogged(t *testing.T) { // not parallel: sets the default logger
	var text bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	defer slog.SetDefault(before)
	ctx, stop := context.WithCancel(t.Context())
	asked, up := 0, prometheus.NewGauge(prometheus.GaugeOpts{Name: "up"})
	watchServer(ctx, time.Millisecond, "Redis", up, func(context.Context) error {
		switch asked++; asked {
		case 1, 2:
			return errors.New("WRONGPASS")
		case 4:
			stop()
		}
		return nil
	})
	if lines := text.String(); strings.Count(lines, "level=WARN") != 1 || strings.Count(lines, "level=INFO") != 1 || !strings.Contains(lines, `server=Redis err=WRONGPASS`) {
		t.Errorf("logged %s; want one warning with the cause and one line when Redis is back", lines)
	}
}
