package translog

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	certifiedEvery   = time.Second
	certifiedRarely  = 10 * time.Second       // where the log has no witnesses, or an earlier release serves it
	certifiedTimeout = 250 * time.Millisecond // a view waits no longer for a log that hangs
)

// certified is what a client knows of the witnesses' progress.
type certified struct {
	size   atomic.Int64 // never falls
	next   atomic.Int64 // unix nanoseconds: when to ask again
	asking singleflight.Group
}

// Trust sets the keys under which LearnCertified verifies heads. Without them it
// learns nothing. Call it before the first call.
func (c *Client) Trust(keys KeySet) { c.heads = &checks{keys: keys} }

// Certified returns the largest tree size that a quorum of witnesses has cosigned,
// as far as this client knows; 0 where it knows of none. It never falls.
func (c *Client) Certified() int64 { return c.certified.size.Load() }

// LearnCertified asks the log for that size, at most once a second whoever calls.
// It returns after a moment, also where the log does not answer.
//
// The log's answer is trusted for which sizes met the quorum, since a client has no
// policy. It is not trusted for more: no size is believed above the newest head,
// which must be signed by a key of the deployment.
func (c *Client) LearnCertified(ctx context.Context) {
	due := func() bool { return time.Now().UnixNano() >= c.certified.next.Load() }
	if !due() {
		return
	}
	_, _, _ = c.certified.asking.Do("", func() (any, error) {
		if !due() {
			return nil, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), certifiedTimeout)
		defer cancel()
		var status Status
		err := c.get(ctx, "/v1/log/status", nil, &status)
		wait := certifiedEvery
		if err == nil && !status.Quorum || errors.Is(err, errNotServed) {
			wait = certifiedRarely
		}
		if err == nil && status.Quorum && status.CertifiedSize != nil && c.published(ctx, *status.CertifiedSize) {
			raise(&c.certified.size, *status.CertifiedSize)
		}
		c.certified.next.Store(time.Now().Add(wait).UnixNano())
		return nil, nil
	})
}

// published reports whether a size that is news is at most that of the newest head.
func (c *Client) published(ctx context.Context, size int64) bool {
	if size <= c.Certified() || c.heads == nil {
		return false
	}
	head, err := c.TreeHead(ctx)
	return err == nil && size <= head.TreeSize && c.heads.head(head) == nil
}
