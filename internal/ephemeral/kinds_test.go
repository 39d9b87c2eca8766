package ephemeral

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairpact/fairpact/internal/localservers/servertest"
)

// works holds every call to what one Redis that two replicas share promises. The
// names spread over all nodes of a cluster.
func works(t *testing.T, url string) {
	t.Helper()
	url += "&" + strings.TrimPrefix(servertest.PatientRedis, "?")
	replicas := []*Redis{hasty(t, url), hasty(t, url)}
	ctx := bounded(t)
	for range 20 {
		name := rand.Text()
		unlock, free := replicas[0].Lock(ctx, name, time.Hour)
		if !free || !held(ctx, replicas[1], name) {
			t.Fatal("a lock holds nobody")
		}
		unlock()
		if held(ctx, replicas[1], name) {
			t.Fatal("an unlocked lock is held")
		}
		replicas[0].Put(ctx, name, []byte(name), time.Hour)
		if got, found := replicas[1].Get(ctx, name); !found || string(got) != name {
			t.Fatalf("the copy is %q, %v", got, found)
		}
		for i := range 3 {
			if _, ok := replicas[i%2].Allow(ctx, name, 2, 1); ok != (i < 2) {
				t.Fatalf("use %d of 2 a minute: allowed %v", i+1, ok)
			}
		}
	}
	for _, r := range replicas {
		if r.downUntil.Load() != 0 {
			t.Error("a command failed")
		}
	}
}

func TestCluster(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		url, servers := servertest.RedisCluster(t, nodes)
		works(t, url)
		r := hasty(t, url)
		if _, cluster := r.client.(*redis.ClusterClient); !cluster {
			t.Errorf("%T is no client of a cluster", r.client)
		}
		for _, s := range servers {
			s.Kill()
		}
		goesOn(t, r)
	}
}

// Sentinel names the new primary when the one before it is gone: the same client
// goes on with it.
func TestSentinel(t *testing.T) {
	url, primary := servertest.RedisSentinel(t)
	works(t, url)
	r := hasty(t, url)
	r.Put(bounded(t), "before", nil, time.Hour)
	primary.Kill()
	goesOn(t, r)
	comesBack(t, r)
}
