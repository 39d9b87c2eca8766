package ctl

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairpact/fairpact/internal/platform/httpclient"
	"github.com/fairpact/fairpact/internal/rules/canon"
	"github.com/fairpact/fairpact/internal/rules/keys"
	"github.com/fairpact/fairpact/internal/rules/verification"
)

// evidence returns the tree head and the keys for a certificate, from files or the deployment.
func (v verifyCommand) evidence(ctx context.Context, t *terminal, cert any) (e verification.Evidence, err error) {
	e.Certificate = cert
	var source *httpclient.Client
	if v.TreeHead == "" || v.Keys == "" && len(v.Pubkey) == 0 {
		if v.BaseURL == "" {
			return e, errors.New("the tree head or the keys are missing: give --base-url, or --tree-head together with --keys or --pubkey")
		}
		if source, err = httpclient.New(v.BaseURL); err != nil {
			return e, err
		}
	}
	if v.TreeHead != "" {
		e.TreeHead, err = t.tree(v.TreeHead)
	} else {
		e.TreeHead, err = fetchHead(ctx, source, cert)
	}
	if err == nil {
		e.Keys, err = v.keys(ctx, t, source)
	}
	return e, err
}

// certificate returns the certificate in a file, which may be in a bundle. bundle is nil if the
// file holds a certificate alone.
func (t *terminal) certificate(path string) (certificate any, bundle map[string]any, err error) {
	text, err := t.read(path)
	if err != nil {
		return nil, nil, err
	}
	given, err := canon.ParseWithin(text, inputLevels)
	if members, ok := given.(map[string]any); ok && members["bundle_version"] != nil {
		return members["certificate"], members, nil
	}
	if err == nil {
		certificate, err = canon.Parse(text)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return certificate, nil, nil
}

// keys returns the keys that --pubkey names. Without --pubkey it returns the keys in the file
// of --keys, and without that file the keys that the deployment publishes.
func (v verifyCommand) keys(ctx context.Context, t *terminal, source *httpclient.Client) (keys.List, error) {
	if len(v.Pubkey) > 0 {
		return keys.Of(v.Pubkey...), nil
	}
	if v.Keys == "" {
		return fetchKeys(ctx, source)
	}
	document, err := t.tree(v.Keys)
	if err != nil {
		return nil, err
	}
	list, err := keys.ParsePublished(document)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: give the answer of GET /v1/pubkeys or GET /v1/status, not the file that FAIRPACT_KEY_SET_FILE names", v.Keys, err)
	}
	return list, nil
}

// fetchKeys returns the keys of /v1/pubkeys. It marks a development key, which only /v1/status
// declares.
func fetchKeys(ctx context.Context, from *httpclient.Client) (keys.List, error) {
	declared, err := fetchList(ctx, from, "/v1/status")
	if err != nil {
		return nil, err
	}
	list, err := fetchList(ctx, from, "/v1/pubkeys")
	for i := range list {
		list[i].Development = declared[0].Development && list[i].Label == declared[0].Label
	}
	return list, err
}

func fetchList(ctx context.Context, from *httpclient.Client, path string) (keys.List, error) {
	document, err := fetch(ctx, from, path)
	if err != nil {
		return nil, err
	}
	return keys.ParsePublished(document)
}

func fetch(ctx context.Context, from *httpclient.Client, path string) (any, error) {
	body, err := from.Get(ctx, path, "")
	if err != nil {
		return nil, err
	}
	v, err := canon.Parse(body)
	if err != nil {
		err = fmt.Errorf("the answer of %s is not strict JSON: %w", path, err)
	}
	return v, err
}

// fetchHead returns the tree head of the size in the certificate's proof. If the log has no
// head of that size, it returns the newest head. The size check then fails.
func fetchHead(ctx context.Context, from *httpclient.Client, cert any) (any, error) {
	newest, err := fetch(ctx, from, "/v1/log/tree-head")
	if err != nil {
		return nil, err
	}
	members, _ := cert.(map[string]any)
	proof, _ := members["log_proof"].(map[string]any)
	size, ok := proof["tree_size"].(int64)
	head, isHead := newest.(map[string]any)
	if !ok || !isHead || head["tree_size"] == any(size) {
		return newest, nil
	}
	older, err := fetch(ctx, from, fmt.Sprintf("/v1/log/tree-head?tree_size=%d", size))
	if refused, ok := errors.AsType[*httpclient.StatusError](err); ok && refused.Status < 500 && refused.Status != 429 {
		return newest, nil
	}
	return older, err
}

// unreadable converts a httpclient.StatusError to a plain error, so that Main returns ExitUsage
// instead of ExitFailed. Evidence that cannot be fetched is not a failed check.
func unreadable(err error) error {
	if refused, ok := errors.AsType[*httpclient.StatusError](err); ok {
		return errors.New(refused.Error())
	}
	return err
}
