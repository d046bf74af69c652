package state

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	redisPrefix  = "xebec:policy:"
	numberPrefix = "n:"

	redisDialTimeout = 2 * time.Second //xebec:limit connection to Redis
	// redisTimeout bounds the write of a pipeline, and the wait for its answers.
	redisTimeout = time.Second //xebec:limit answer of Redis to a pipeline
	// redisPool is one connection for the writer and some for concurrent readers.
	redisPool = 4
	// redisPipeline is how many states a pipeline has: enough to amortise the round trip, and few enough to finish well within a second
	// even with the largest states.
	redisPipeline = 128
	// redisScan is how many keys the server scans in one step, and redisUnlink how many one command of Forget deletes.
	redisScan   = 1000
	redisUnlink = 200

	// A state remembers a writer's sequence number for a day, and this many writers. An update that is sent again after that counts
	// twice.
	writerMemorySeconds = 24 * 60 * 60
	writersRemembered   = 256 //xebec:limit gateways that a state in Redis remembers for exactly-once writes
)

//go:embed merge.lua
var mergeSource string

// mergeScript is sent with its text in the first call of each pipeline and by its hash in the others.
var mergeScript = redis.NewScript(mergeSource)

// go-redis logs what it also returns as errors. Logging is left to the caller.
func init() { redis.SetLogger(silence{}) }

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// redisStore is a Backend in a Redis server. doc.go describes it.
type redisStore struct {
	client *redis.Client
	name   string
	writer string // 128 random bits in hexadecimal
	known  lineage
	limits objectLimits

	formats     []format // of databases, oldest first; the last one is read and written
	conversions conversions
}

// OpenRedis opens the store in the Redis server that url names: redis://[user:password@]host[:port][/db], or rediss:// for TLS
// with the system's certificates. It does not contact the server, which may come up later, so only an invalid URL is an error. Other
// errors, such as a wrong password, are returned by the first call.
func OpenRedis(url string) (Backend, error) {
	options, name, err := parseRedisURL(url)
	if err != nil {
		return nil, err
	}
	return openRedis(options, name), nil
}

func openRedis(options *redis.Options, name string) *redisStore {
	options.Protocol = 2
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = redisDialTimeout, redisTimeout, redisTimeout
	options.PoolTimeout = redisTimeout
	options.ContextTimeoutEnabled = true
	// The caller retries, with the same sequence numbers.
	options.MaxRetries, options.DialerRetries = -1, 1
	options.PoolSize, options.PipelinePoolSize = redisPool, -1
	options.DisableIdentity = true
	// A server that requires a password answers a short command with an error, but closes the connection during a long one.
	options.OnConnect = func(ctx context.Context, c *redis.Conn) error { return c.Ping(ctx).Err() }
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	var id [16]byte
	rand.Read(id[:])
	return &redisStore{
		client: redis.NewClient(options), name: name, writer: hex.EncodeToString(id[:]), limits: defaultLimits,
		formats: redisFormats(formats),
	}
}

// parseRedisURL parses a URL. Its errors quote no part of the URL, because in a mistyped one the password may be anywhere.
func parseRedisURL(where string) (*redis.Options, string, error) {
	const expected = "expected redis://[user:password@]host[:port][/db] or rediss://…; characters like / : @ % in a password are written as %2F %3A %40 %25"
	u, err := url.Parse(where)
	if err != nil {
		return nil, "", errors.New("the Redis URL cannot be read: " + expected)
	}
	if u.Scheme != "redis" && u.Scheme != "rediss" {
		return nil, "", errors.New("the Redis URL has an unknown scheme: " + expected)
	}
	if u.Hostname() == "" {
		return nil, "", errors.New("the Redis URL names no host: " + expected)
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, "", errors.New("the Redis URL has parameters, and none are supported: " + expected)
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return nil, "", errors.New("the Redis URL's port is not a number from 1 to 65535: " + expected)
	}
	db := 0
	if path := strings.TrimPrefix(u.Path, "/"); path != "" {
		n, err := strconv.ParseUint(path, 10, 16)
		if err != nil {
			return nil, "", errors.New("the Redis URL's database is not a number from 0 to 65535: " + expected)
		}
		db = int(n)
	}
	options := &redis.Options{Addr: net.JoinHostPort(u.Hostname(), port), DB: db}
	if u.User != nil {
		options.Username = u.User.Username()
		options.Password, _ = u.User.Password()
	}
	if u.Scheme == "rediss" {
		options.TLSConfig = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	}
	return options, fmt.Sprintf("%s://%s/%d", u.Scheme, options.Addr, db), nil
}

func (r *redisStore) Shared() bool { return true }
func (r *redisStore) Name() string { return r.name }

func (r *redisStore) Close() error {
	err := r.client.Close()
	r.conversions.close()
	return err
}

// redisKey is the key of a state. Function and policy are escaped and have no colons; the context comes last, unescaped.
func redisKey(k Key) string { return functionPrefix(k.Function) + escape(k.Policy) + ":" + k.Context }

func functionPrefix(function string) string { return redisPrefix + escape(function) + ":" }

// escape leaves DNS names as they are and writes as %XX every byte that could end a name or has a meaning in a pattern.
func escape(name string) string {
	plain := func(c byte) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_'
	}
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; plain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// A call is one run of the script merge.lua.
type call struct {
	index int // of the result
	key   Key
	args  []any // ARGV from 5 on
}

func (r *redisStore) Merge(ctx context.Context, updates []Update) ([][]Total, error) {
	results := make([][]Total, len(updates))
	var refused refusals
	round := make([]call, 0, min(len(updates), redisPipeline))
	inRound := make(map[Key]struct{}, cap(round))
	flush := func() error {
		err := r.run(ctx, round, results, &refused)
		round = round[:0]
		clear(inRound)
		return err
	}
	for i := range updates {
		u := &updates[i]
		if err := u.check(); err != nil {
			refused.add(i, u.Key, err.Error())
			continue
		}
		// Two updates of one state never share a pipeline: if the first failed and the second did not, a retry of the first would be
		// ignored.
		if _, again := inRound[u.Key]; again || len(round) == redisPipeline {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		inRound[u.Key] = struct{}{}
		round = append(round, call{i, u.Key, r.mergeArgs(u)})
	}
	if err := flush(); err != nil {
		return nil, err
	}
	return results, refused.err()
}

func (r *redisStore) mergeArgs(u *Update) []any {
	args := make([]any, 0, 2+3*len(u.Fields))
	args = append(args, "w:"+r.writer, fmt.Sprintf("%020d", u.Seq))
	for i := range u.Fields {
		f := &u.Fields[i]
		args = append(args, numberPrefix+f.Name, formatNumber(f.Base), formatNumber(f.Delta))
	}
	return args
}

// formatNumber returns the shortest text that parses to the same number.
func formatNumber(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

func (r *redisStore) Load(ctx context.Context, keys []Key) ([][]Total, error) {
	results := make([][]Total, len(keys))
	var refused refusals
	round := make([]call, 0, min(len(keys), redisPipeline))
	for i, k := range keys {
		if err := k.check(); err != nil {
			refused.add(i, k, err.Error())
		} else {
			round = append(round, call{i, k, []any{"", ""}})
		}
		if len(round) == redisPipeline || i == len(keys)-1 {
			if err := r.run(ctx, round, results, &refused); err != nil {
				return nil, err
			}
			round = round[:0]
		}
	}
	return results, refused.err()
}

// run sends the calls in one pipeline. It stores their results, and adds calls that fail for a single state to refused. After an error,
// which is about the server or the whole store, some calls may have been applied.
func (r *redisStore) run(ctx context.Context, calls []call, results [][]Total, refused *refusals) error {
	if len(calls) == 0 {
		return nil
	}
	before := len(*refused)
	return r.inFormat(ctx, func() error {
		*refused = (*refused)[:before]
		return r.runOnce(ctx, calls, results, refused)
	})
}

func (r *redisStore) runOnce(ctx context.Context, calls []call, results [][]Total, refused *refusals) error {
	pipe := r.client.Pipeline()
	answers := make([]*redis.Cmd, len(calls))
	for i, c := range calls {
		keys := []string{redisKey(c.key), redisFormatKey, objectsFormatKey}
		args := append(make([]any, 0, 4+len(c.args)), r.format(), maxFields, writersRemembered, writerMemorySeconds)
		args = append(args, c.args...)
		if i == 0 {
			// With the text, because a restarted server does not know the hash. The calls that follow use it.
			answers[i] = mergeScript.Eval(ctx, pipe, keys, args...)
		} else {
			answers[i] = mergeScript.EvalSha(ctx, pipe, keys, args...)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return r.explain(err)
	}
	for i, c := range calls {
		totals, reason, err := r.parseState(answers[i].Val())
		if err != nil {
			return err
		}
		if reason != "" {
			refused.add(c.index, c.key, reason)
		} else {
			results[c.index] = totals
		}
	}
	return nil
}

// parseState parses the answer of merge.lua: a state, or the reason why the update is refused, or an error about the whole store.
func (r *redisStore) parseState(answer any) ([]Total, string, error) {
	unreadable := fmt.Errorf("%s: the script's answer cannot be read: is there a proxy, or a server that is not Redis, in between?", r.name)
	list, ok := answer.([]any)
	if !ok || len(list) == 0 || len(list) > 1+2*maxFields {
		return nil, "", unreadable
	}
	texts := make([]string, len(list))
	for i := range list {
		if texts[i], ok = list[i].(string); !ok {
			return nil, "", unreadable
		}
	}
	detail := ""
	if len(texts) > 1 {
		detail = texts[1]
	}
	switch texts[0] {
	case "ok":
	case "format":
		return nil, "", r.wrongFormat(detail)
	case "kind":
		return nil, fmt.Sprintf("its key is a %s, not a hash: another program uses the same names; delete the key, or use another database", detail), nil
	case "long":
		return nil, fmt.Sprintf("its key has %s fields, more than any state has: delete the function's learned state", detail), nil
	case "number":
		return nil, fmt.Sprintf("its field %q is not what this program writes: delete the function's learned state", detail), nil
	case "sum":
		return nil, reasonOverflow(strings.TrimPrefix(detail, numberPrefix)), nil
	case "many":
		n, _ := strconv.Atoi(detail)
		return nil, reasonTooMany(n), nil
	default:
		return nil, "", unreadable
	}
	if len(texts)%2 == 0 {
		return nil, "", unreadable
	}
	totals := make([]Total, 0, len(texts)/2)
	for i := 1; i < len(texts); i += 2 {
		name, isNumber := strings.CutPrefix(texts[i], numberPrefix)
		x, err := strconv.ParseFloat(texts[i+1], 64)
		if !isNumber || err != nil || !finite(x) {
			return nil, "", unreadable
		}
		totals = append(totals, Total{name, x})
	}
	sortTotals(totals)
	return totals, "", nil
}

// Forget scans all keys in small steps, so that the server can serve others in between. An index of each function's contexts would cost
// a write in every Merge.
func (r *redisStore) Forget(ctx context.Context, function string) error {
	if function == "" {
		return errors.New("no function given: expected the function whose state is to be deleted")
	}
	if err := r.inFormat(ctx, func() error { return r.checkFormat(ctx) }); err != nil {
		return err
	}
	if err := r.dropNotes(ctx, SeriesOf(function)); err != nil {
		return err
	}
	var cursor uint64
	for {
		keys, next, err := r.client.Scan(ctx, cursor, functionPrefix(function)+"*", redisScan).Result()
		if err != nil {
			return r.explain(err)
		}
		for piece := range slices.Chunk(keys, redisUnlink) {
			if err := r.client.Unlink(ctx, piece...).Err(); err != nil {
				return r.explain(err)
			}
		}
		if next == 0 {
			return nil
		}
		cursor = next
	}
}
