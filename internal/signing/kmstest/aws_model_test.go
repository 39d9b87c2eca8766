package kmstest

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"
)

//go:embed testdata/kms-2014-11-01.json
var serviceModel []byte

type modelShape struct {
	Type      string
	Required  []string
	Members   map[string]struct{ Shape string }
	Member    struct{ Shape string }
	Enum      []string
	Min, Max  *float64
	Exception bool
}

type model struct {
	Metadata   struct{ TargetPrefix, JSONVersion string }
	Operations map[string]struct {
		Input, Output string
		Errors        []string
	}
	Shapes map[string]modelShape
}

// check holds a JSON value against a shape.
func (m *model) check(t *testing.T, at, shape string, value any) {
	t.Helper()
	s := m.Shapes[shape]
	length := -1
	ok := true
	switch s.Type {
	case "structure":
		var object map[string]any
		if object, ok = value.(map[string]any); ok {
			for _, name := range s.Required {
				if _, has := object[name]; !has {
					t.Errorf("%s lacks %s", at, name)
				}
			}
			for name, v := range object {
				if member, known := s.Members[name]; known {
					m.check(t, at+"."+name, member.Shape, v)
				} else {
					t.Errorf("%s.%s is not in the model", at, name)
				}
			}
		}
	case "list":
		var list []any
		list, ok = value.([]any)
		length = len(list)
		for _, v := range list {
			m.check(t, at+"[]", s.Member.Shape, v)
		}
	case "string":
		var text string
		text, ok = value.(string)
		length = len(text)
		if ok && s.Enum != nil && !slices.Contains(s.Enum, text) {
			t.Errorf("%s: %q is not one of %v", at, text, s.Enum)
		}
	case "blob":
		var text string
		if text, ok = value.(string); ok {
			raw, err := base64.StdEncoding.DecodeString(text)
			ok, length = err == nil, len(raw)
		}
	case "boolean":
		_, ok = value.(bool)
	case "timestamp", "integer":
		_, ok = value.(float64)
	default:
		t.Errorf("%s: the test knows no shape of type %q (%s)", at, s.Type, shape)
	}
	if !ok {
		t.Errorf("%s: %v is not a %s", at, value, s.Type)
	} else if length >= 0 && (s.Min != nil && float64(length) < *s.Min || s.Max != nil && float64(length) > *s.Max) {
		t.Errorf("%s: length %d is outside the model's bounds", at, length)
	}
}

// Every answer and every error is of the shapes and names that Amazon publishes.
func TestAWSAnswersAreOfTheServiceModel(t *testing.T) {
	t.Parallel()
	var m model
	if err := json.Unmarshal(serviceModel, &m); err != nil {
		t.Fatal(err)
	}
	a, err := StartAWS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	good, disabled, leaving, gone := a.NewKey(), a.NewKey(), a.NewKey(), a.NewKey()
	a.SetState(disabled, "Disabled")
	a.SetState(leaving, "PendingDeletion")
	a.SetState(gone, "Unavailable")
	p384 := a.NewKeyOf("ECC_NIST_P384", "SIGN_VERIFY", true)
	k1 := a.NewKeyOf("ECC_SECG_P256K1", "SIGN_VERIFY", false)
	agreement := a.NewKeyOf("ECC_NIST_P256", "KEY_AGREEMENT", false)
	symmetric := a.NewKeyOf("SYMMETRIC_DEFAULT", "ENCRYPT_DECRYPT", false)
	missing := "00000000-1111-2222-3333-444444444444"
	request := func(key string, more ...any) map[string]any {
		r := map[string]any{"KeyId": key}
		for i := 0; i < len(more); i += 2 {
			r[more[i].(string)] = more[i+1]
		}
		return r
	}
	sign := func(key string, more ...any) map[string]any {
		return request(key, append([]any{"Message", make([]byte, 32), "MessageType", "DIGEST", "SigningAlgorithm", "ECDSA_SHA_256"}, more...)...)
	}
	for _, c := range []struct {
		operation string
		request   map[string]any
		refusal   string
		fault     Fault
	}{
		{"Sign", sign(good), "", None},
		{"Sign", sign(good, "MessageType", "RAW", "GrantTokens", []string{"x"}), "", None},
		{"Sign", sign(p384, "Message", make([]byte, 48), "SigningAlgorithm", "ECDSA_SHA_384"), "", None},
		{"GetPublicKey", request(good), "", None},
		{"GetPublicKey", request(p384), "", None},
		{"GetPublicKey", request(k1), "", None},
		{"GetPublicKey", request(agreement), "", None},
		{"DescribeKey", request(good), "", None},
		{"DescribeKey", request(p384), "", None},
		{"DescribeKey", request(symmetric), "", None},
		{"DescribeKey", request(leaving), "", None},
		{"Sign", sign(missing), "NotFoundException", None},
		{"Sign", sign(disabled), "DisabledException", None},
		{"Sign", sign(leaving), "KMSInvalidStateException", None},
		{"Sign", sign(gone), "KMSInvalidStateException", None},
		{"Sign", sign(p384), "InvalidKeyUsageException", None},
		{"Sign", sign(agreement), "InvalidKeyUsageException", None},
		{"Sign", sign(good, "DryRun", true), "DryRunOperationException", None},
		{"Sign", sign(good), "KMSInternalException", ServerError},
		{"Sign", sign(good), "KeyUnavailableException", KeyUnavailable},
		{"GetPublicKey", request(missing), "NotFoundException", None},
		{"GetPublicKey", request(disabled), "DisabledException", None},
		{"GetPublicKey", request(symmetric), "UnsupportedOperationException", None},
		{"DescribeKey", request(missing), "NotFoundException", None},
	} {
		if err := a.SetFault(c.fault); err != nil {
			t.Fatal(err)
		}
		at := c.operation + " " + c.refusal
		body, err := json.Marshal(c.request)
		if err != nil {
			t.Fatal(err)
		}
		o := m.Operations[c.operation]
		var sent, got any
		if err := json.Unmarshal(body, &sent); err != nil {
			t.Fatal(err)
		}
		m.check(t, at+" request", o.Input, sent)
		status, header, text := callAWS(t, a, m.Metadata.TargetPrefix+"."+c.operation, body)
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%s: %v in %s", at, err, text)
		}
		if header.Get("Content-Type") != "application/x-amz-json-"+m.Metadata.JSONVersion || header.Get("x-amzn-RequestId") == "" {
			t.Errorf("%s: header %v", at, header)
		}
		if c.refusal == "" {
			if status != http.StatusOK {
				t.Errorf("%s: HTTP %d %s", at, status, text)
			}
			m.check(t, at+" answer", o.Output, got)
			continue
		}
		object, _ := got.(map[string]any)
		if object["__type"] != c.refusal || !slices.Contains(o.Errors, c.refusal) || !m.Shapes[c.refusal].Exception || status < 400 {
			t.Errorf("%s: HTTP %d %s; the model has %v", at, status, text, o.Errors)
		}
		delete(object, "__type")
		m.check(t, at, c.refusal, object)
	}
}

// callAWS sends a request that is signed as far as the server looks.
func callAWS(t *testing.T, a *AWS, target string, body []byte) (int, http.Header, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.URL()+"/", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Format("20060102T150405Z")
	r.Header.Set("Content-Type", "application/x-amz-json-1.1")
	r.Header.Set("X-Amz-Target", target)
	r.Header.Set("X-Amz-Date", now)
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKIATESTTESTTESTTEST/"+now[:8]+"/"+awsTestRegion+"/kms/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-target, Signature=0000000000000000000000000000000000000000000000000000000000000000")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, text
}
