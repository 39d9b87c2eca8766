package service

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"

	"google.golang.org/grpc/grpclog"
)

func TestErrorsOfGRPCAreLogLines(t *testing.T) {
	var out bytes.Buffer
	logGRPC(slog.New(slog.NewJSONHandler(&out, nil)))
	grpclog.Info("a connection")
	grpclog.Error("too_many_pings")
	var line struct{ Level, Msg, Err string }
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Level != "ERROR" || !bytes.Contains([]byte(line.Err), []byte("too_many_pings")) {
		t.Errorf("%v; want one line of the error:\n%s", err, out.Bytes())
	}
}
