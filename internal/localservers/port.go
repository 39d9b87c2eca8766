package localservers

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are picked below the range that Linux hands out by itself (from
// 32768), so that a server which restarts on its port does not find an
// outgoing connection sitting there.
const firstPort, lastPort = 20000, 32000

// FreePort gives a loopback TCP port that nobody listens on at the moment.
// Someone may take it before the caller does: callers retry.
func FreePort() (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		l.Close()
		return port, nil
	}
	return 0, fmt.Errorf("found no free port on 127.0.0.1 between %d and %d", firstPort, lastPort)
}
