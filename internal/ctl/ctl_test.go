package ctl

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairpact/fairpact/internal/api/wire"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/verification"
)

type ran struct {
	code     int
	out, err string
}

func run(t *testing.T, stdin string, args ...string) ran {
	t.Helper()
	var out, errs bytes.Buffer
	code := Main(t.Context(), args, strings.NewReader(stdin), &out, &errs)
	return ran{code, out.String(), errs.String()}
}

func (r ran) report(t *testing.T) (report verification.Report, failed []string) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatalf("the output is not a report in JSON: %v in %+v", err, r)
	}
	for _, check := range report.Checks {
		if !check.OK {
			failed = append(failed, check.Name)
		}
	}
	return report, failed
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The expected digests come from sha256sum.
func TestSeal(t *testing.T) {
	input := `{ "valuations": {"car": 60, "boat": 40} }`
	r := run(t, input, "seal", "-", "--salt", "pepper")
	if want := "commitment sha256:fba60f43fc903dca305164ada796bc2152ff2066b231a91366aa48c5268183fc\nsalt       pepper\n"; r.code != 0 || r.out != want || r.err != "" {
		t.Errorf("seal with the salt pepper: %+v, want exit code 0 and\n%s", r, want)
	}
	r = run(t, input, "seal", "-", "--salt=", "--json")
	if want := `"commitment": "sha256:793f95816daca01fac35783d3c22802079c55c47b8dadd27f87c148d46f77b4e"`; !strings.Contains(r.out, want) {
		t.Errorf("seal with an empty salt: %+v, want %s", r, want)
	}

	kept := filepath.Join(t.TempDir(), "sealed.json")
	type committed struct{ Commitment, Salt string }
	var first, second committed
	for _, made := range []*committed{&first, &second} {
		r := run(t, input, "seal", "-", "--json", "--out", kept)
		if err := json.Unmarshal([]byte(r.out), made); err != nil || len(made.Salt) != 32 {
			t.Fatalf("seal --out: %+v (error %v), want a salt of 32 hex digits", r, err)
		}
		text, err := os.ReadFile(kept)
		if info, _ := os.Stat(kept); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v (error %v), want a file of mode 0600", kept, info, err)
		}
		if want := `{"input":{"valuations":{"boat":40,"car":60}},"salt":"` + made.Salt + "\"}\n"; string(text) != want {
			t.Errorf("%s holds %s, want %s", kept, text, want)
		}
		if again := run(t, input, "seal", kept+"/../sealed.json", "--out", kept); again.code != ExitUsage {
			t.Errorf("seal --out with an existing sealed file: %+v, want exit code %d", again, ExitUsage)
		}
		kept += "2"
	}
	if first.Salt == second.Salt {
		t.Errorf("two seals have the same salt %s", first.Salt)
	}
}

func TestSealRefuses(t *testing.T) {
	deep := strings.Repeat(`{"a":`, canon.MaxInputDepth)
	for input, says := range map[string]string{
		// A reveal of it would be refused, after the commitment.
		deep + "{}" + strings.Repeat("}", canon.MaxInputDepth): "more than 31 deep",
		`{"a":1.5}`: "byte offset 5", `{"a":1,"a":2}`: "twice", `[1]`: "object", ``: "", `{"a":9007199254740992}`: "",
	} {
		if r := run(t, input, "seal", "-"); r.code != ExitUsage || r.out != "" || !strings.Contains(r.err, says) || !strings.HasPrefix(r.err, "fairpactctl: ") {
			t.Errorf("seal of %s: %+v, want exit code %d and an error with %q", input, r, ExitUsage, says)
		}
	}
	if r := run(t, "{}", "seal", "-", "--salt", strings.Repeat("a", canon.MaxSalt+1)); r.code != ExitUsage {
		t.Errorf("seal with a salt of %d bytes: %+v, want exit code %d", canon.MaxSalt+1, r, ExitUsage)
	}
}

func TestExitCodesOfUsage(t *testing.T) {
	cert := write(t, "cert.json", "{}")
	for _, args := range [][]string{
		{}, {"no-such"}, {"verify"}, {"verify", cert}, {"verify", cert, "--tree-head", cert}, {"verify", cert + "x", "--base-url", "http://localhost:1"},
		{"verify", cert, "--base-url", "file:///"}, {"verify", cert, "--tree-head", cert, "--pubkey", "k", "--params", cert},
		{"verify", cert, "--tree-head", cert, "--keys", cert}, {"deal"}, {"deal", "status"}, {"deal", "commit", cert},
		{"completion", "--code", "tcsh"},
	} {
		if r := run(t, "", args...); r.code != ExitUsage || r.out != "" || r.err == "" {
			t.Errorf("%q: %+v, want exit code %d and an error", args, r, ExitUsage)
		}
	}
	for _, args := range [][]string{{"--help"}, {"--version"}, {"deal", "create", "--help"}} {
		if r := run(t, "", args...); r.code != 0 || r.out == "" {
			t.Errorf("%q: %+v, want exit code 0 and output", args, r)
		}
	}
}

// `log key --of` prints the same verifier key as the `log key --out` that made the file. `log key`
// never overwrites a file.
func TestLogKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log.pem")
	made := run(t, "", "log", "key", "--origin", "log.example/one", "--out", file)
	shown := run(t, "", "log", "key", "--origin", "log.example/one", "--of", "file://"+file)
	if made.code != 0 || made != shown || !strings.HasPrefix(made.out, "log.example/one+") {
		t.Errorf("--out prints %+v and --of %+v, want the same verifier key of log.example/one", made, shown)
	}
	for _, args := range [][]string{{"--out", file}, {}, {"--out", file + "2", "--of", "file://" + file}, {"--out", file + "2", "--origin", "https://log.example"}} {
		if r := run(t, "", append([]string{"log", "key", "--origin", "log.example/one"}, args...)...); r.code == 0 {
			t.Errorf("log key %v: %+v, want an error", args, r)
		}
	}
}

func TestHelpHasExamples(t *testing.T) {
	help := run(t, "", "--help").out
	commands := regexp.MustCompile(`(?m)^  ([a-z-]+(?: [a-z]+)?)  +[A-Z]`).FindAllStringSubmatch(help, -1)
	for _, found := range append(commands, []string{"", "key-files"}) {
		command := found[1]
		r := run(t, "", append(strings.Fields(command), "--help")...)
		if r.code != 0 || command != "completion" && (!strings.Contains(r.out, "Examples:") || !strings.Contains(r.out, "fairpactctl "+command)) {
			t.Errorf("%s --help: %+v, want Examples with fairpactctl %s", command, r, command)
		}
	}
	if len(commands) < 30 || !strings.Contains(help, "Auditors: ") {
		t.Errorf("--help shows %d commands, want 30 or more in groups: %s", len(commands), help)
	}
}

func TestASecretInAWrongPlaceIsNotRepeated(t *testing.T) {
	const token = "it_Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4"
	for _, args := range [][]string{{token}, {"verify", token, "--tree-head", token, "--pubkey", token}, {"deal", "status", token}, {"deal", "status", "--party", token},
		{"deal", "status", "--base-url", token, "--deal", "d"}, {"api-key", "--base-url", "http://" + token + "@host"}} {
		if r := run(t, "", args...); r.code != ExitUsage || strings.Contains(r.out+r.err, "Zm9v") {
			t.Errorf("%q: %+v, want exit code %d without the token", args, r, ExitUsage)
		}
	}
}

func TestStrangersTextStaysOnItsLine(t *testing.T) {
	const label, want = "a\nOK   shape\x1b[2J\u202e\u0085é", `a\u000aOK   shape\u001b[2J\u202e\u0085é`
	if got := printable(label); got != want {
		t.Errorf("printable(%q) is %q, want %q", label, got, want)
	}
}

func TestAnswersInJSON(t *testing.T) {
	var out bytes.Buffer
	term := &terminal{out: &out, json: true}
	if err := term.answer([]byte("{\"label\":\"\u009b2J\u202e<é\",\"n\":12345678901234567890}\n")); err != nil {
		t.Fatal(err)
	}
	if want := "{\"label\":\"\\u009b2J\\u202e<é\",\"n\":12345678901234567890}\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	out.Reset()
	for _, body := range []string{"<html>\x1b[2J", "", "{", "{\"a\":\"\x1b\"}"} {
		if err := term.answer([]byte(body)); err == nil || out.Len() > 0 {
			t.Errorf("%q: got error %v and output %q, want an error alone", body, err, out.String())
		}
	}
}

func TestInputsFile(t *testing.T) {
	nested := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	term := &terminal{}
	rows, err := term.inputs(write(t, "i.json", `[{"input":`+nested(32)+`,"salt":"s"}, null, {"other": []}, 7]`))
	if err != nil || len(rows) != 4 || rows[1] != nil || rows[3] != int64(7) {
		t.Errorf("four rows with an input of depth 32 read as %v (error %v), want 4 rows", rows, err)
	}
	for _, bad := range []string{`[{"input":` + nested(33) + `}]`, `[{"input":{"a":1.5}}]`, `[{"input":{},"input":{}}]`, `{}`, `null`, `[`, ``, `[1.5]`, `[{"salt":"\ud800"}]`, `[{"input":{"a":1,"a":2}}]`} {
		if rows, err := term.inputs(write(t, "i.json", bad)); err == nil {
			t.Errorf("%s reads as %v, want an error", bad, rows)
		}
	}
}

func TestProgressLine(t *testing.T) {
	now := time.Unix(1000, 0)
	v := wire.View{State: "COMMITTING", CommitDeadline: 1090, RevealDeadline: 1200, Parties: make([]wire.Party, 2)}
	v.Parties[0].Committed = true
	for _, row := range []struct{ state, want string }{
		{"COMMITTING", "COMMITTING  1/2 committed  0/2 revealed  1m30s left to commit"},
		{"REVEALING", "REVEALING  1/2 committed  0/2 revealed  3m20s left to reveal"},
		{"COMPUTED", "COMPUTED  1/2 committed  0/2 revealed  certificate pending"},
		{"CANCELLED", "CANCELLED  1/2 committed  0/2 revealed"},
	} {
		v.State = row.state
		if got := progressLine(v, now); got != row.want {
			t.Errorf("state %s: the line is %q, want %q", row.state, got, row.want)
		}
	}
}

func TestCompletionInBash(t *testing.T) {
	if script := run(t, "", "completion", "--code", "bash").out; !strings.Contains(script, "complete -o default -o bashdefault -C ") {
		t.Errorf("the completion script is %q", script)
	}
	t.Setenv("COMP_LINE", "fairpactctl deal c")
	r := run(t, "")
	if got := slices.Sorted(slices.Values(strings.Fields(r.out))); r.code != 0 || !slices.Equal(got, []string{"cancel", "certificate", "commit", "create"}) {
		t.Errorf("\"fairpactctl deal c\" is completed with %+v, want create, commit, certificate and cancel", r)
	}
}
