package servertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairpact/fairpact/internal/dev/localservers"
	"github.com/fairpact/fairpact/internal/dev/localservers/child"
)

const (
	slots        = 16384 // hash slots of a Redis Cluster
	testPassword = "of-all-its-nodes"
)

// RedisCluster starts a Redis Cluster with the given number of nodes. It returns the
// cluster's URL and the nodes.
func RedisCluster(t testing.TB, nodes int) (string, []*localservers.Redis) {
	t.Helper()
	var servers []*localservers.Redis
	var clients []*redis.Client
	var buses []int
	for i := range nodes {
		bus, err := localservers.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, startRedis(t, localservers.Options{Password: testPassword, Settings: []string{
			"cluster-enabled yes", "cluster-node-timeout 2000", "cluster-require-full-coverage no", "cluster-port " + strconv.Itoa(bus)}}))
		buses = append(buses, bus)
		clients = append(clients, clientOf(t, servers[i]))
		do(t, clients[i], "CLUSTER", "ADDSLOTSRANGE", slots*i/nodes, slots*(i+1)/nodes-1)
	}
	for i := 1; i < nodes; i++ {
		do(t, clients[0], "CLUSTER", "MEET", "127.0.0.1", servers[i].Port(), buses[i])
	}
	for _, c := range clients {
		eventually(t, "the cluster is complete", func() bool {
			info, err := c.ClusterInfo(t.Context()).Result()
			return err == nil && strings.Contains(info, "cluster_slots_ok:"+strconv.Itoa(slots)) && strings.Contains(info, "cluster_state:ok")
		})
	}
	url := fmt.Sprintf("redis://:%s@127.0.0.1:%d?cluster=true", testPassword, servers[0].Port())
	for _, s := range servers[1:] {
		url += fmt.Sprintf("&addr=127.0.0.1:%d", s.Port())
	}
	return url, servers
}

// RedisSentinel starts a primary Redis, a replica, and a Sentinel that fails over within
// seconds. It returns the Sentinel's URL and the primary.
func RedisSentinel(t testing.TB) (string, *localservers.Redis) {
	t.Helper()
	primary := startRedis(t, localservers.Options{Password: testPassword})
	replica := clientOf(t, startRedis(t, localservers.Options{Password: testPassword, Settings: []string{
		"masterauth " + testPassword, fmt.Sprintf("replicaof 127.0.0.1 %d", primary.Port())}}))
	eventually(t, "the replica is connected to its primary", func() bool {
		info, err := replica.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	port, err := localservers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\nsentinel monitor fairpact 127.0.0.1 %d 1\nsentinel auth-pass fairpact %s\n"+
		"sentinel down-after-milliseconds fairpact 1000\nsentinel failover-timeout fairpact 5000\n", port, primary.Port(), testPassword)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel, err := child.Start(exec.Command("redis-server", config, "--sentinel"), syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sentinel.Kill)
	asked := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", port)})
	t.Cleanup(func() { _ = asked.Close() })
	eventually(t, "Sentinel knows the replica", func() bool {
		master, err := asked.Do(t.Context(), "SENTINEL", "REPLICAS", "fairpact").Slice()
		return err == nil && len(master) == 1
	})
	return fmt.Sprintf("redis://127.0.0.1:%d/0?master_name=fairpact&password=%s", port, testPassword), primary
}

func clientOf(t testing.TB, server *localservers.Redis) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func do(t testing.TB, c *redis.Client, command ...any) {
	t.Helper()
	if err := c.Do(t.Context(), command...).Err(); err != nil {
		t.Fatalf("servertest: Redis command %v failed: %v", command[:2], err)
	}
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for ended := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(ended) {
			t.Fatalf("servertest: condition not met within 1 minute: %s", what)
		}
	}
}
