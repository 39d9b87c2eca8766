package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestDealsAreProcessedAtTheMillisecondOfTheirDeadline(t *testing.T) {
	due := map[string]time.Duration{
		"at once": 0, "overdue": -time.Hour, "soon": 1234 * time.Millisecond, "at the horizon": horizon,
		"later": 10 * time.Second, "much later": 2*time.Hour + 1, "after the test": 1000 * time.Hour,
	}
	want := map[string]time.Duration{}
	for deal, deadline := range due {
		want[deal] = max(0, deadline.Round(time.Millisecond))
	}
	bubble(t, due, nil, func(t *testing.T, d *deals, _ *Controller) {
		time.Sleep(3 * time.Hour)
		for deal, deadline := range want {
			times := d.times(deal)
			if deal == "after the test" {
				if len(times) != 0 {
					t.Errorf("%s is attended at %v, want never", deal, times)
				}
				continue
			}
			if d.endings(deal) != 1 {
				t.Errorf("%s ended %d times, want once", deal, d.endings(deal))
			}
			if len(times) == 0 || len(times) > 3 || times[0] < deadline || times[len(times)-1] > deadline+5*time.Millisecond {
				t.Errorf("%s is due at %v and attended at %v, want once to three times within 5 ms", deal, deadline, times)
			}
		}
	})
}

// If ProcessDeal returns a delay of at most `horizon`, the controller queues the deal again with this
// delay. If the delay is longer, a later listing of due deals (relist) queues the deal.
func TestADealIsProcessedAgain(t *testing.T) {
	bubble(t, map[string]time.Duration{"a": 0}, func(d *deals) {
		d.attend = func(context.Context, string) (time.Duration, error, bool) {
			d.change(func() { delete(d.due, "a") })
			switch len(d.times("a")) {
			case 1:
				return 1200 * time.Millisecond, nil, true
			case 2:
				return time.Hour, nil, true
			}
			return 0, nil, true
		}
	}, func(t *testing.T, d *deals, _ *Controller) {
		time.Sleep(3 * time.Hour)
		times := d.times("a")
		if len(times) != 2 || times[1]-times[0] != 1200*time.Millisecond {
			t.Errorf("attended at %v, want twice, 1.2 s apart", times)
		}
	})
}

// The pause before the next try of a deal doubles after each failure up to lastRetry, although
// each relist lists the deal. A success resets the pause. The failures add about one line a
// minute to the log.
func TestFailuresBackOff(t *testing.T) {
	const failures = 11
	fail := func(d *deals, first int) {
		d.attend = func(context.Context, string) (time.Duration, error, bool) {
			if len(d.times("failing"))-first <= failures {
				return 0, errors.New("out of reach"), true
			}
			return 0, nil, false
		}
	}
	var log bytes.Buffer
	bubble(t, map[string]time.Duration{"failing": 0}, func(d *deals) {
		d.log = slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})
		fail(d, 0)
	}, func(t *testing.T, d *deals, _ *Controller) {
		for round := range 2 {
			before := len(d.times("failing"))
			if round > 0 {
				d.change(func() {
					d.due["failing"] = d.now()
					fail(d, before)
				})
			}
			time.Sleep(5 * time.Minute)
			times := d.times("failing")[before:]
			if len(times) < failures+1 {
				t.Fatalf("attended at %v, want at least %d times", times, failures+1)
			}
			want := firstRetry
			for i := range failures {
				if pause := times[i+1] - times[i]; pause != want {
					t.Errorf("after failure %d the next try comes in %v, want %v", i+1, pause, want)
				}
				want = min(2*want, lastRetry)
			}
			if n := d.endings("failing"); n != round+1 {
				t.Errorf("the deal ended %d times, want %d", n, round+1)
			}
		}
	})
	if lines := strings.Count(log.String(), "\n"); lines < 2 || lines > 4 || strings.Count(log.String(), `"msg":"deals cannot be processed, retrying"`) != lines {
		t.Errorf("%d failures are logged as the lines below, want 2 to 4 of one message\n%s", 2*failures, &log)
	}
}

func TestOtherDealsAreProcessedInTime(t *testing.T) {
	due := map[string]time.Duration{"failing": 0}
	for i := range 200 {
		due[fmt.Sprint("slow ", i)] = 0
	}
	for i := range 100 {
		due[fmt.Sprint("good ", i)] = time.Duration(i%10) * time.Second
	}
	bubble(t, due, func(d *deals) {
		d.attend = func(ctx context.Context, deal string) (time.Duration, error, bool) {
			switch {
			case deal == "failing":
				return 0, errors.New("out of reach"), true
			case strings.HasPrefix(deal, "slow"):
				<-ctx.Done()
				return 0, ctx.Err(), true
			}
			return 0, nil, false
		}
	}, func(t *testing.T, d *deals, _ *Controller) {
		time.Sleep(time.Minute)
		for i := range 100 {
			deal := fmt.Sprint("good ", i)
			if times := d.times(deal); d.endings(deal) != 1 || times[len(times)-1] > time.Duration(i%10)*time.Second+10*time.Millisecond {
				t.Errorf("%s ended %d times and was attended at %v, want once and in time", deal, d.endings(deal), times)
			}
		}
		if n := len(d.times("slow 7")); n < 2 || n > 4 {
			t.Errorf("a deal that takes processTimeout was attended %d times in a minute, want 2 to 4", n)
		}
	})
}

// Deals that cannot be processed, and are listed first, hide no others.
func TestFailingDealsHideNoOthers(t *testing.T) {
	due := map[string]time.Duration{"good": 20 * time.Second}
	for i := range listLimit + 100 {
		due[fmt.Sprint("failing ", i)] = 0
	}
	bubble(t, due, func(d *deals) {
		for i := range listLimit + 100 {
			d.complete[fmt.Sprint("all of a failing one have acted ", i)] = true
		}
		d.attend = func(_ context.Context, deal string) (time.Duration, error, bool) {
			return 0, errors.New("its seals cannot be opened"), strings.Contains(deal, "failing")
		}
	}, func(t *testing.T, d *deals, _ *Controller) {
		time.Sleep(20 * time.Second)
		d.change(func() { d.complete["good too"] = true })
		time.Sleep(40 * time.Second)
		for _, deal := range []string{"good", "good too"} {
			if times := d.times(deal); d.endings(deal) != 1 || times[0] > 23*time.Second {
				t.Errorf("%q was attended at %v, want soon after 20 s", deal, times)
			}
		}
	})
}

// When the database answers again, relists add every deal that became due meanwhile. The
// first relist that succeeds makes the worker ready.
func TestListingsFailAtFirst(t *testing.T) {
	bubble(t, map[string]time.Duration{"a": time.Second}, func(d *deals) {
		d.listing, d.complete["b"] = errors.New("no database"), true
	}, func(t *testing.T, d *deals, c *Controller) {
		time.Sleep(10 * time.Second)
		if c.Ready() == nil {
			t.Error("ready although no listing has succeeded")
		}
		d.change(func() { d.listing = nil })
		time.Sleep(completeEvery*relistEvery + time.Second)
		if err := c.Ready(); err != nil {
			t.Errorf("Ready after a relist: %v, want no error", err)
		}
		if d.endings("a") != 1 || d.endings("b") != 1 {
			t.Errorf("deals a and b ended %d and %d times, want once each", d.endings("a"), d.endings("b"))
		}
	})
}

// The time that a relist takes does not delay the next one.
func TestSlowListingsKeepTheirPeriod(t *testing.T) {
	bubble(t, map[string]time.Duration{}, func(d *deals) { d.listTime = 300 * time.Millisecond }, func(t *testing.T, d *deals, _ *Controller) {
		time.Sleep(4*relistEvery + d.listTime + time.Millisecond) // no call is under way at the end
		d.change(func() {
			if want := []time.Duration{0, relistEvery, 2 * relistEvery, 3 * relistEvery, 4 * relistEvery}; !slices.Equal(d.lists, want) {
				t.Errorf("listed at %v, want %v", d.lists, want)
			}
		})
	})
}

func TestSweepsEveryMinute(t *testing.T) {
	bubble(t, map[string]time.Duration{}, func(d *deals) {
		d.sweeping = errors.New("no database")
	}, func(t *testing.T, d *deals, _ *Controller) {
		time.Sleep(4*time.Minute + time.Second)
		d.change(func() {
			if want := []time.Duration{0, time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute}; !slices.Equal(d.sweeps, want) {
				t.Errorf("swept at %v, want %v", d.sweeps, want)
			}
		})
	})
}

func TestResealsInBatches(t *testing.T) {
	bubble(t, map[string]time.Duration{}, func(d *deals) { d.toReseal = 3 }, func(t *testing.T, d *deals, _ *Controller) {
		time.Sleep(2*resealPause + resealEvery + time.Second)
		d.change(func() {
			if want := []time.Duration{0, resealPause, 2 * resealPause, 2*resealPause + resealEvery}; !slices.Equal(d.reseals, want) {
				t.Errorf("resealed at %v, want %v", d.reseals, want)
			}
		})
	})
}

func TestDeletesContentsInBatches(t *testing.T) {
	bubble(t, map[string]time.Duration{}, func(d *deals) { d.toDelete = 2 }, func(t *testing.T, d *deals, _ *Controller) {
		time.Sleep(2*deletePause + sweepEvery + time.Second)
		d.change(func() {
			if want := []time.Duration{0, deletePause, 2 * deletePause, 2*deletePause + sweepEvery}; !slices.Equal(d.deletes, want) {
				t.Errorf("deleted at %v, want %v", d.deletes, want)
			}
		})
	})
}

// The synctest bubble fails the test if a goroutine still runs after stop returns.
func TestStopCancelsCallsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeals(map[string]time.Duration{"a": 0, "b": time.Hour, "c": time.Second})
		d.attend = func(ctx context.Context, deal string) (time.Duration, error, bool) {
			<-ctx.Done()
			return 0, ctx.Err(), true
		}
		_, stop := start(t, d)
		time.Sleep(1500 * time.Millisecond)
		if len(d.times("a")) != 1 || len(d.times("c")) != 1 {
			t.Errorf("deals a and c are attended at %v and %v, want once each", d.times("a"), d.times("c"))
		}
		began := time.Now()
		stop()
		if took := time.Since(began); took >= processTimeout {
			t.Errorf("a stop takes %v, want less than %v", took, processTimeout)
		}
	})
}
