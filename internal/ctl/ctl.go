// Package ctl is the command line of Fairpact, for parties, auditors and operators. The rules
// of a deal are in other packages.
package ctl

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"

	"github.com/fairpact/fairpact/internal/platform/httpclient"
	"github.com/fairpact/fairpact/internal/platform/version"
	"github.com/fairpact/fairpact/internal/rules/algorithm"
)

// Exit codes.
const (
	ExitOK            = 0 // done; every check passed
	ExitFailed        = 1 // a check failed, or the service refused
	ExitUsage         = 2 // wrong usage, an unreadable file, or an unreachable service
	ExitForged        = 3 // a log is forked, contradicts its signed checkpoints, closes a deal twice or has inconsistent tables
	ExitUnknownIssuer = 4 // a certificate is consistent, but its issuer is not proven
)

type commands struct {
	JSON    bool             `help:"Write one JSON value to standard output, for machines."`
	Version kong.VersionFlag `help:"Show the version."`

	APIKey      apiKeyCommand             `cmd:"" name:"api-key" group:"parties" help:"Get an API key: no signup, no e-mail."`
	SeatKey     seatKeyCommand            `cmd:"" group:"parties" help:"Make a seat key, which signs your commitments."`
	Seal        sealCommand               `cmd:"" group:"parties" help:"Make the commitment to an input, with a new salt if none is given."`
	Deal        dealCommands              `cmd:"" group:"parties" help:"Take part in a deal: create, invite, commit, reveal, watch, fetch its bundle."`
	Verify      verifyCommand             `cmd:"" group:"auditors" help:"Verify a bundle or a certificate, and recompute the result from the inputs."`
	Receipt     receiptCommand            `cmd:"" group:"auditors" help:"Prove with a receipt that a party sealed in time, and what its seal opens to."`
	Settle      settleCommand             `cmd:"" group:"auditors" help:"Compute the result of a deal from its seals, without the service. No certificate is issued."`
	Log         logCommands               `cmd:"" help:"Audit, mirror and watch a transparency log; make the key that signs its checkpoints."`
	SigningKeys signingKeysCommands       `cmd:"" group:"operators" help:"Check and change the key set of a deployment; rotate its signing key."`
	Secret      secretCommands            `cmd:"" group:"operators" help:"Rotate the server secret, show the progress of a rotation, or replace a lost secret."`
	Certificate certificateCommands       `cmd:"" group:"operators" help:"Restore certificates, or leaves of the log, that a changed or restored database lost."`
	Migrate     migrateCommand            `cmd:"" group:"operators" help:"Bring the database schemas to this version. Running the command again does nothing."`
	Smoke       smokeCommand              `cmd:"" group:"operators" help:"Run a whole test deal against a deployment and verify its certificate."`
	KeyFiles    keyFilesCommand           `cmd:"" hidden:"" help:"Copy private keys into files that only their owner can read."`
	Completion  kongcompletion.Completion `cmd:"" group:"shell" help:"Show how to switch on completion in bash, zsh or fish."`
}

var groups = kong.ExplicitGroups([]kong.Group{
	{Key: "parties", Title: "Parties: take part in a deal"},
	{Key: "auditors", Title: "Auditors: verify what a deployment says (parties can too)"},
	{Key: "operators", Title: "Operators: run a deployment"},
	{Key: "shell", Title: "Shell"},
})

type terminal struct {
	in       io.Reader
	out, err io.Writer
	json     bool
}

// Returned by a command that has printed what is wrong; see the exit codes.
var (
	errFailed = errors.New("a check failed")
	errForged = errors.New("the log contradicts its signed checkpoints")

	errUnknownIssuer = errors.New("the certificate is consistent, but its issuer is not proven")
)

// refusal is an error for which Main returns ExitFailed: the usage was right.
type refusal struct{ error }

// Main runs a command line (without the program's name) and returns the exit code.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var c commands
	exited, code := false, 0
	parser, err := kong.New(&c, kong.Name("fairpactctl"), kong.Writers(stdout, stderr), groups,
		kong.Vars{"version": version.Version, "pubkey": pubkeyHelp, "algorithms": strings.Join(algorithm.IDs(), ", ")}, kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Exit(func(n int) { exited, code = true, n; panic(exitPanic{}) }),
		kong.BindTo(ctx, (*context.Context)(nil)))
	if err != nil {
		panic(err) // only if the struct tags of commands are wrong
	}
	addHelp(parser.Model.Node)
	err = func() (err error) {
		defer func() { // --help, --version and completion panic with exitPanic to stop parsing
			if p := recover(); p != nil {
				if _, ours := p.(exitPanic); !ours {
					panic(p)
				}
			}
		}()
		kongcompletion.Register(parser) // answers and exits if the shell asks for completions
		k, err := parser.Parse(args)
		if err != nil {
			return fmt.Errorf("%w (see %s --help)", err, subject(err))
		}
		return k.Run(&terminal{stdin, stdout, stderr, c.JSON})
	}()
	switch {
	case exited:
		return code
	case err == nil:
		return ExitOK
	case errors.Is(err, errFailed):
		return ExitFailed
	case errors.Is(err, errForged):
		return ExitForged
	case errors.Is(err, errUnknownIssuer):
		return ExitUnknownIssuer
	}
	fmt.Fprintln(stderr, "fairpactctl: "+printable(redacted(err.Error())))
	_, here := errors.AsType[refusal](err)
	_, there := errors.AsType[*httpclient.StatusError](err)
	if here || there {
		return ExitFailed
	}
	return ExitUsage
}

type exitPanic struct{}

func subject(err error) string {
	parse, ok := errors.AsType[*kong.ParseError](err)
	if !ok || parse.Context == nil || parse.Context.Selected() == nil {
		return "fairpactctl"
	}
	return parse.Context.Selected().FullPath()
}

var secret = regexp.MustCompile(`\b(fp|it)_[A-Za-z0-9_-]{4,}`)

// redacted hides credentials: an error may quote a key that a user typed instead of a file name.
func redacted(text string) string { return secret.ReplaceAllString(text, "${1}_…") }

// printable escapes control characters and characters that change the text direction. Labels and
// names come from strangers, who could otherwise forge lines of the output.
func printable(line string) string {
	var b strings.Builder
	for _, r := range line {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r >= 0x200b && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return strings.TrimRight(b.String(), " ")
}

// helpTexts holds a section for each command, under a heading like "## deal create".
//
//go:embed help.md
var helpTexts string

func addHelp(node *kong.Node) {
	if _, text, found := strings.Cut(helpTexts, "\n## "+cmp.Or(node.Path(), node.Name)+"\n"); found {
		text, _, _ = strings.Cut(text, "\n## ")
		node.Detail = strings.TrimSpace(text)
	}
	for _, child := range node.Children {
		addHelp(child)
	}
}
