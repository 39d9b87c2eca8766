package redis

import (
	"cmp"
	"errors"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"
)

// connect returns the client for a URL, and the timeout of one command. A URL has one of
// these forms:
//
//	redis://[USER:PASSWORD@]HOST:PORT/DB                            one server
//	redis://[USER:PASSWORD@]HOST:PORT/DB?master_name=NAME&addr=…    Sentinels
//	redis://[USER:PASSWORD@]HOST:PORT?cluster=true&addr=…           a cluster
//
// rediss:// is the same over TLS. addr=HOST:PORT names another Sentinel or node and
// may be repeated. In a URL of Sentinels, USER and PASSWORD are for the Sentinels, and the
// parameters username and password are for Redis. The parameters dial_timeout,
// read_timeout, write_timeout and pool_timeout replace commandTimeout.
func connect(text string) (client redis.UniversalClient, timeout time.Duration, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, 0, err
	}
	// One try, within the time of the command.
	once := func(retries, dials *int, endsWithContext *bool, timeouts ...*time.Duration) {
		*retries, *dials, *endsWithContext = -1, 1, true
		for _, t := range timeouts {
			*t = cmp.Or(*t, commandTimeout)
		}
	}
	query := u.Query()
	switch cluster := query.Get("cluster") == "true"; {
	case cluster && query.Has("master_name"):
		return nil, 0, errors.New("cluster=true and master_name exclude each other: give one")
	case cluster:
		query.Del("cluster") // go-redis rejects unknown parameters
		u.RawQuery = query.Encode()
		o, err := redis.ParseClusterURL(u.String())
		if err != nil {
			return nil, 0, err
		}
		once(&o.MaxRetries, &o.DialerRetries, &o.ContextTimeoutEnabled, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
		return redis.NewClusterClient(o), o.ReadTimeout, nil
	case query.Has("master_name"):
		o, err := redis.ParseFailoverURL(text)
		if err != nil {
			return nil, 0, err
		}
		once(&o.MaxRetries, &o.DialerRetries, &o.ContextTimeoutEnabled, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
		return redis.NewFailoverClient(o), o.ReadTimeout, nil
	}
	o, err := redis.ParseURL(text)
	if err != nil {
		return nil, 0, err
	}
	once(&o.MaxRetries, &o.DialerRetries, &o.ContextTimeoutEnabled, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return redis.NewClient(o), o.ReadTimeout, nil
}
