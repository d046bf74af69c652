package state

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
)

const noPermission = "the user in the URL may not do this: it needs PING, EVAL, EVALSHA, GET, MGET, SET, TYPE, TIME, SCAN, UNLINK, " +
	"HLEN, HSTRLEN, HGET, HMGET, HKEYS, HGETALL, HEXISTS, HSET, HDEL, ZADD, ZCARD, ZCOUNT, ZRANGE, ZRANK, ZREM, ZREMRANGEBYRANK, ZREVRANGEBYLEX and ZSCORE on xebec:*"

// remedies say what to do about error answers of a Redis server, which are recognised by a part of their text. It usually comes first, but
// older servers put another text before the error of a script.
var remedies = []struct{ part, what string }{
	{"NOAUTH", "it requires a password: put one into the URL, as redis://:password@host"},
	{"WRONGPASS", "it does not accept the user or the password in the URL"},
	{"NOPERM", noPermission},
	{"can't run this command", noPermission},
	{"READONLY", "it is a replica: name the primary in the URL"},
	{"LOADING", "it is still loading its data: try again soon"},
	{"OOM", "it has no memory left for writes: raise its maxmemory, or give it less to keep"},
	{"MISCONF", "it refuses writes because it cannot save: check its log and its disk"},
	{"BUSY", "another program's script blocks it: see SCRIPT KILL"},
	{"NOSCRIPT", "its scripts were flushed at this moment: try again"},
	{"MASTERDOWN", "it is a replica that has lost its primary: name the primary in the URL"},
	{"CROSSSLOT", "it is a Redis Cluster, which is not supported: use a single primary"},
	{"MOVED", "it is a Redis Cluster, which is not supported: use a single primary"},
	{"ERR DB index", "it has fewer databases than the number that ends the URL: use a lower one, or raise its `databases`"},
	{"ERR unknown command", "it is too old, or a command is disabled: Redis 5 or newer is needed, with scripts"},
	{"ERR max number of clients", "it has too many clients: raise its maxclients"},
}

// explain adds to an error where it comes from and what to do about it, and wraps it.
func (r *redisStore) explain(err error) error {
	var answered redis.Error
	var dial *net.OpError
	var timeout net.Error
	switch {
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%s: the store is closed: %w", r.name, err)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: given up by the caller: %w", r.name, err)
	case errors.As(err, &answered):
		for _, m := range remedies {
			if strings.Contains(answered.Error(), m.part) {
				return fmt.Errorf("%s: %s: %w", r.name, m.what, err)
			}
		}
		return fmt.Errorf("%s answers with an error: %w", r.name, err)
	case errors.Is(err, redis.ErrPoolTimeout):
		return fmt.Errorf("%s: all %d connections have been busy for %v: is it slow? %w", r.name, redisPool, redisTimeout, err)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("%s cannot be reached: start the server, or correct the address: %w", r.name, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%s does not answer in time (%v at most): is it stopped, overloaded or far away? %w", r.name, redisTimeout, err)
	}
	return fmt.Errorf("%s: the connection failed: %w", r.name, err)
}
