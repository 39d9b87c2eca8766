package ctl

import (
	"context"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairpact/fairpact/internal/escrow"
	"github.com/fairpact/fairpact/internal/escrow/sealing"
	"github.com/fairpact/fairpact/internal/escrow/store"
	"github.com/fairpact/fairpact/internal/platform/database"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/certificate"
	"github.com/fairpact/fairpact/internal/rules/verification"
	"github.com/fairpact/fairpact/internal/translog"
)

type certificateCommands struct {
	Adopt  certificateAdoptCommand  `cmd:"" help:"Restore a deal's certificate in the database from a party's copy, if the log has this certificate."`
	Return certificateReturnCommand `cmd:"" help:"Restore the leaves that the log lost when its database was restored, from the parties' copies of their certificates."`
}

type certificateAdoptCommand struct {
	Certificate string `arg:"" help:"Bundle or certificate file, exactly as the party received it; '-' reads standard input."`
	Keys        string `placeholder:"FILE" help:"File with the key set, as GET /v1/pubkeys returned it."`
	TreeHead    string `placeholder:"FILE" help:"File with the answer of GET /v1/log/tree-head?tree_size=N, where N is the tree_size in the certificate's log_proof."`
	BaseURL     string `env:"FAIRPACT_URL" placeholder:"URL" help:"URL of the deployment. The command fetches from there what --keys and --tree-head do not give."`
	databases
	SecretFile string `env:"FAIRPACT_SERVER_SECRET_FILE" required:"" type:"path" help:"File with the server secrets of the deployment."`
}

func (a certificateAdoptCommand) Run(ctx context.Context, t *terminal) error {
	secret, err := sealing.Load(a.SecretFile)
	if err != nil {
		return err
	}
	cert, _, err := t.certificate(a.Certificate)
	if err != nil {
		return err
	}
	evidence, err := verifyCommand{Keys: a.Keys, TreeHead: a.TreeHead, BaseURL: a.BaseURL}.evidence(ctx, t, cert)
	if err != nil {
		return unreadable(err)
	}
	if report := verification.Verify(evidence); notALeaf(report) != nil {
		return t.report(report, report, verdict(report))
	}
	members, leaf, payload := leafOf(evidence)
	dealID := members["deal_id"]
	err = inDatabases(ctx, a.databases, func(s *store.Store, log *pgxpool.Pool) error {
		found, err := translog.Has(ctx, log, leaf)
		if err != nil {
			return err
		}
		if !found {
			return refusal{fmt.Errorf("the log in this database has a different certificate of deal %s, or a different entry at leaf %d: ask another party for its copy of the certificate", dealID, leaf.Index)}
		}
		return escrow.Adopt(ctx, s, secret, payload, members["signature"].(string), leaf.Index)
	})
	if err != nil {
		return err
	}
	return t.show(map[string]any{"deal_id": dealID, "cert_id": members["cert_id"], "leaf_index": leaf.Index},
		"deal %s has certificate %s, which is at leaf %d of the log", dealID, members["cert_id"], leaf.Index)
}

func leafOf(e verification.Evidence) (members map[string]any, leaf translog.TaggedLeaf, payload []byte) {
	members = e.Certificate.(map[string]any) // verified, so all members exist and have the right types
	signed := maps.Clone(members)
	delete(signed, "signature")
	delete(signed, "log_proof")
	payload = canon.Encode(signed)
	index := members["log_proof"].(map[string]any)["leaf_index"].(int64)
	return members, translog.TaggedLeaf{Index: index, Entry: certificate.Entry(payload), Tag: certificate.Tag(members["deal_id"].(string))}, payload
}

func inDatabases(ctx context.Context, d databases, do func(*store.Store, *pgxpool.Pool) error) error {
	s, err := store.Open(ctx, d.DatabaseURL, 2)
	if err != nil {
		return err
	}
	defer s.Close()
	log, err := database.Open(ctx, d.log(), 1)
	if err != nil {
		return err
	}
	defer database.Close(log)
	return do(s, log)
}
