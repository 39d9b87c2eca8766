package redis

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
	maxChanges    = 4096
	maxAnnounced  = 256
	betweenTwo    = 10 * time.Millisecond // pause between Redis messages, so that one announces more deals under load
	listenTimeout = 3 * time.Second       // how long a listener waits for a message before it pings, and then for the answer
)

// changes returns the name of the Redis channel that announces changed deals. The name includes
// the database number, because all databases of a Redis server share the server's channels.
func (r *Redis) changes() string {
	database := 0 // a cluster has only database 0
	if one, ok := r.client.(*redis.Client); ok {
		database = one.Options().DB
	}
	return fmt.Sprintf("fairpact:changes:%d", database)
}

// Announce queues an announcement that a deal has changed. It does not block, and drops the
// announcement if the queue is full or Redis does not answer.
func (r *Redis) Announce(dealID string) {
	select {
	case r.announcements <- dealID:
	default:
		dropped.Inc()
	}
}

// announce sends queued announcements until ctx ends and the queue is empty. A message
// contains the name of this process and at most maxAnnounced deal ids.
func (r *Redis) announce(ctx context.Context) {
	for {
		words := []string{r.name}
		select {
		case id := <-r.announcements:
			words = append(words, id)
		case <-ctx.Done():
			if len(r.announcements) == 0 {
				return
			}
		}
		for more := true; more && len(words) <= maxAnnounced; {
			select {
			case id := <-r.announcements:
				words = append(words, id)
			default:
				more = false
			}
		}
		if err := r.publish(context.WithoutCancel(ctx), strings.Join(words, " ")); err != nil {
			dropped.Add(float64(len(words) - 1))
		}
		select {
		case <-ctx.Done():
		case <-time.After(betweenTwo):
		}
	}
}

var errDown = errors.New("Redis failed less than a second ago and is not asked again yet")

func (r *Redis) publish(ctx context.Context, message string) error {
	if !r.up() {
		return errDown
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	err := r.client.Publish(ctx, r.changes(), message).Err()
	// An error reply from Redis is no outage: for example, the ACL may forbid the channel.
	if _, refused := errors.AsType[redis.Error](err); !refused {
		r.noteFailure(context.WithoutCancel(ctx), err)
	}
	return err
}

// Listen calls notify(dealIDs...) for each message of another process, until ctx ends. It
// calls setConnected(true) after it subscribes, and setConnected(false) when the subscription
// breaks. Listen then waits for a second and subscribes again.
func (r *Redis) Listen(ctx context.Context, notify func(dealIDs ...string), setConnected func(bool)) {
	for ctx.Err() == nil {
		r.listen(ctx, notify, setConnected)
		setConnected(false)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (r *Redis) listen(ctx context.Context, notify func(...string), setConnected func(bool)) {
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
			setConnected(true)
		case *redis.Message:
			if from, ids, _ := strings.Cut(m.Payload, " "); from != r.name {
				notify(strings.Fields(ids)...)
			}
		}
	}
}
