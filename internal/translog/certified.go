package translog

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/fairpact/fairpact/internal/signing"
)

const (
	certifiedEvery   = time.Second            // interval between the requests of LearnCertified
	certifiedRarely  = 10 * time.Second       // the same interval if the log demands no cosignatures
	certifiedTimeout = 250 * time.Millisecond // timeout of LearnCertified, which may delay the view of a deal
)

type certified struct {
	size   atomic.Int64
	next   atomic.Int64 // when LearnCertified may ask the log again, in unix nanoseconds
	asking singleflight.Group
}

// Trust sets the keys that LearnCertified verifies heads with. Without keys, Certified
// stays 0. Call Trust before the first LearnCertified.
func (c *Client) Trust(keys *signing.KeySet) { c.heads = &checks{keys: keys} }

// Certified returns the largest tree size that this client knows to be cosigned by a
// quorum of witnesses, or 0. The size never falls.
func (c *Client) Certified() int64 { return c.certified.size.Load() }

// LearnCertified asks the log for the tree size that a quorum of witnesses has cosigned, and
// raises Certified to this size. After a failure Certified stays the same. All callers together
// ask at most once a second. A call waits at most certifiedTimeout.
//
// The client has no witness policy, so it trusts the log about the quorum. The client checks
// only that the newest head covers the size and is signed by a trusted key.
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
		if err == nil && !status.Quorum {
			wait = certifiedRarely
		}
		if err == nil && status.Quorum && status.CertifiedSize != nil && c.covered(ctx, *status.CertifiedSize) {
			raise(&c.certified.size, *status.CertifiedSize)
		}
		c.certified.next.Store(time.Now().Add(wait).UnixNano())
		return nil, nil
	})
}

// covered reports whether size is larger than Certified(), and the newest head is signed by a
// trusted key and has at least `size` leaves.
func (c *Client) covered(ctx context.Context, size int64) bool {
	if size <= c.Certified() || c.heads == nil {
		return false
	}
	head, err := c.TreeHead(ctx)
	return err == nil && size <= head.TreeSize && c.heads.head(head) == nil
}
