package ephemeral

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	maxChanges    = 4096            // that wait to be announced
	maxAnnounced  = 256             // deals of one message
	listenTimeout = 3 * time.Second // without a message, until Redis is asked whether it is there, and again for its answer
)

// changes is the channel on which processes announce to each other which deals
// they have changed. Channels are one for all databases of a server.
func (r *Redis) changes() string {
	database := 0 // a cluster has no other
	if one, ok := r.client.(*redis.Client); ok {
		database = one.Options().DB
	}
	return fmt.Sprintf("fairpact:changes:%d", database)
}

// Announce tells the other processes that a deal has changed, sometime soon. It
// does not block: where Redis is gone or slow the announcement is dropped.
func (r *Redis) Announce(dealID string) {
	select {
	case r.announcements <- dealID:
	default:
		dropped.Inc()
	}
}

// announce sends what was announced, what waits at one moment as one message:
// the name of this process and the deals.
func (r *Redis) announce(ctx context.Context) {
	for {
		words := []string{r.name}
		select {
		case <-ctx.Done():
			return
		case id := <-r.announcements:
			words = append(words, id)
		}
		for more := true; more && len(words) <= maxAnnounced; {
			select {
			case id := <-r.announcements:
				words = append(words, id)
			default:
				more = false
			}
		}
		if err := r.publish(ctx, strings.Join(words, " ")); err != nil {
			dropped.Add(float64(len(words) - 1))
		}
	}
}

var errDown = errors.New("Redis failed a moment ago")

func (r *Redis) publish(ctx context.Context, message string) error {
	if !r.up() {
		return errDown
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	err := r.client.Publish(ctx, r.changes(), message).Err()
	// A Redis that refuses this one command (an ACL without the channel) is up.
	if _, refused := errors.AsType[redis.Error](err); !refused {
		r.noteFailure(context.WithoutCancel(ctx), err)
	}
	return err
}

// Listen calls heard with the deals that other processes announce until ctx ends,
// and connected when announcements begin or cease to arrive. It comes back to a
// Redis that was gone.
func (r *Redis) Listen(ctx context.Context, heard func(dealIDs ...string), connected func(bool)) {
	for ctx.Err() == nil {
		r.listen(ctx, heard, connected)
		connected(false)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// listen returns when the subscription is broken.
func (r *Redis) listen(ctx context.Context, heard func(...string), connected func(bool)) {
	subscription := r.client.Subscribe(ctx, r.changes())
	defer subscription.Close()
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })()
	for asked := false; ; {
		received, err := subscription.ReceiveTimeout(ctx, listenTimeout)
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() && !asked {
			if subscription.Ping(ctx) != nil {
				return
			}
			asked = true
			continue
		}
		if err != nil {
			return
		}
		asked = false
		switch m := received.(type) {
		case *redis.Subscription:
			connected(true)
		case *redis.Message:
			if from, ids, _ := strings.Cut(m.Payload, " "); from != r.name {
				heard(strings.Fields(ids)...)
			}
		}
	}
}
