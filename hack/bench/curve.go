package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// curvePoints are database sizes in ended deals.
var curvePoints = []int{1_000, 100_000, 1_000_000}

func measureCurve(ctx context.Context, o options, r *results) error {
	s := samples{}
	for _, n := range curvePoints {
		if err := measurePoint(ctx, o, r, s, n); err != nil {
			return fmt.Errorf("curve at %d ended deals: %w", n, err)
		}
	}
	r.replace(s)
	return nil
}

func measurePoint(ctx context.Context, o options, r *results, s samples, n int) (err error) {
	own := samples{}
	b, err := start(ctx, o.bin, time.Duration(o.seconds)*time.Second, own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.fill(n); err != nil {
		return err
	}
	if r.Parts[partCurve], err = b.provenance(o); err != nil {
		return err
	}
	say("playing deals in a database with %d ended deals", n)
	for range o.rounds {
		t, err := b.playDeals(64, b.measureFor)
		if err != nil {
			return err
		}
		own.addLoad("deals", t)
		if err := b.verifyHeads(); err != nil {
			return err
		}
	}
	c, err := b.startCounting()
	if err != nil {
		return err
	}
	defer c.close()
	if _, err := c.countDeals(64, idleTime); err != nil {
		return err
	}
	s["curve.ended"] = append(s["curve.ended"], float64(n))
	for name, values := range own {
		s[fmt.Sprintf("curve.%d.%s", n, name)] = values
	}
	return nil
}
