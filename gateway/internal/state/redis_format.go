package state

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

const (
	// Two keys have the format of a database, because objects were added later with a key of their own. Their values are equal, or one or
	// both are missing. Every script checks both keys, and every script that writes sets both.
	redisFormatKey   = "xebec:format"
	objectsFormatKey = objectsPrefix + "format"

	// conversionMark separates the two formats in the value of the format keys while a database is converted: "1>2".
	conversionMark = ">"
	// redisConversionPiece is how many states one run of a step's script converts. The largest states have 4,096 numbers; at a few
	// microseconds each, a run is well within redisTimeout. Other clients of the server wait meanwhile.
	redisConversionPiece = 16
)

//go:embed format.lua
var formatSource string

// A formatError says that a database has another format than the one that this program reads and writes.
type formatError struct{ store, found, want string }

func (e *formatError) Error() string {
	const advice = "use the version of the program that wrote it or a newer one, or another database (the number that ends the URL)"
	if from, to, begun := strings.Cut(e.found, conversionMark); begun {
		return fmt.Sprintf("%s: a gateway of a newer version has begun to convert the store from format %.20q to %.20q, and this program reads and writes format %q: %s",
			e.store, from, to, e.want, advice)
	}
	return fmt.Sprintf("%s: the store has format %.20q, and this program reads and writes format %q: %s", e.store, e.found, e.want, advice)
}

func (r *redisStore) wrongFormat(found string) error {
	return &formatError{r.name, found, r.format()}
}

// format returns the format that this store reads and writes.
func (r *redisStore) format() string { return r.formats[len(r.formats)-1].redis }

// step returns the step that converts a database of the format found, which may have a conversion in progress ("1>2"). It returns nil for the
// last format, newer formats and unknown ones.
func (r *redisStore) step(found string) (step redisStep, from, to string) {
	from, begunTo, begun := strings.Cut(found, conversionMark)
	at := slices.IndexFunc(r.formats, func(f format) bool { return f.redis == from })
	if at < 0 || at == len(r.formats)-1 {
		return nil, "", ""
	}
	next := &r.formats[at+1]
	if begun && begunTo != next.redis {
		return nil, "", ""
	}
	return next.redisStep, from, next.redis
}

// readFormat returns the database's format. known is false if the database has none yet.
func (r *redisStore) readFormat(ctx context.Context) (format string, known bool, err error) {
	values, err := r.client.MGet(ctx, redisFormatKey, objectsFormatKey).Result()
	if err != nil {
		return "", false, r.explain(err)
	}
	var found []string
	for _, value := range values {
		if text, ok := value.(string); ok {
			found = append(found, text)
		}
	}
	switch {
	case len(found) == 0:
		return "", false, nil
	case len(found) == 2 && found[0] != found[1]:
		return "", false, fmt.Errorf("%s: the key %s says format %.20q and %s says %.20q, which should be the same: restore the database from a copy, or use another one (the number that ends the URL)",
			r.name, redisFormatKey, found[0], objectsFormatKey, found[1])
	}
	return found[0], true, nil
}

// inFormat calls op. If op finds an older format, inFormat converts the database and calls op again.
func (r *redisStore) inFormat(ctx context.Context, op func() error) error {
	err := op()
	var wrong *formatError
	if !errors.As(err, &wrong) {
		return err
	}
	if step, _, _ := r.step(wrong.found); step == nil {
		return err
	}
	if err := r.convert(ctx); err != nil {
		return err
	}
	return op()
}

// conversions has the running conversion. A store runs one at a time.
type conversions struct {
	lock    sync.Mutex
	running *conversion
	closed  bool
	group   sync.WaitGroup
}

type conversion struct {
	converted atomic.Int64 // states
	done      chan struct{}
	err       error // valid once done is closed
}

// convert converts the database to the last format, or waits for the conversion in progress. The conversion continues when ctx ends,
// because a large database can take longer than any caller waits. It ends early with an error or when the store is closed.
func (r *redisStore) convert(ctx context.Context) error {
	r.conversions.lock.Lock()
	c := r.conversions.running
	switch {
	case r.conversions.closed:
		r.conversions.lock.Unlock()
		return r.explain(redis.ErrClosed)
	case c == nil:
		c = &conversion{done: make(chan struct{})}
		r.conversions.running = c
		r.conversions.group.Go(func() {
			c.err = r.convertSteps(context.WithoutCancel(ctx), c)
			r.conversions.lock.Lock()
			r.conversions.running = nil
			r.conversions.lock.Unlock()
			close(c.done)
		})
	}
	r.conversions.lock.Unlock()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return fmt.Errorf("%s: the store is being converted to format %q, %d states so far: try again later: %w", r.name, r.format(), c.converted.Load(), ctx.Err())
	}
}

// close waits for a running conversion, which fails because the client is closed.
func (c *conversions) close() {
	c.lock.Lock()
	c.closed = true
	c.lock.Unlock()
	c.group.Wait()
}

// convertSteps runs step after step until the database has the last format. A step moves the format keys from FROM to FROM>TO, which locks out
// all gateways including older ones, then converts, then moves the keys to TO. If the gateway dies in between, the keys stay at
// FROM>TO, and the next gateway that knows the step runs it again.
func (r *redisStore) convertSteps(ctx context.Context, c *conversion) error {
	for {
		found, known, err := r.readFormat(ctx)
		if err != nil || !known || found == r.format() {
			return err
		}
		step, from, to := r.step(found)
		if step == nil {
			return r.wrongFormat(found)
		}
		if err := r.convertStep(ctx, c, step, from, to); err != nil && !errors.Is(err, errConverted) {
			return err
		}
	}
}

// errConverted says that another gateway has finished the step.
var errConverted = errors.New("another gateway has finished the conversion")

func (r *redisStore) convertStep(ctx context.Context, c *conversion, step redisStep, from, to string) error {
	// Use one connection for the whole step. It breaks when the server restarts or fails over, after which a SCAN that continues would
	// miss keys.
	conn := r.client.Conn()
	defer func() { _ = conn.Close() }()
	m := &redisMigration{store: r, conn: conn, during: from + conversionMark + to, converted: &c.converted}
	failed := func(err error) error {
		if errors.Is(err, errConverted) {
			return err
		}
		return fmt.Errorf("the conversion of the store from format %q to %q has stopped, and the next call continues it: %w", from, to, err)
	}
	if now, err := m.setFormat(ctx, from, m.during); err != nil {
		return failed(err)
	} else if now != m.during {
		return errConverted
	}
	if err := step(ctx, m); err != nil {
		return failed(err)
	}
	if _, err := m.setFormat(ctx, m.during, to); err != nil {
		return failed(err)
	}
	return nil
}

// A redisMigration runs the scripts of a step.
type redisMigration struct {
	store     *redisStore
	conn      *redis.Conn
	during    string // the value of the format keys while the step runs
	converted *atomic.Int64
}

// setFormat moves the format keys from one value to another and returns the value that they have afterwards. If that is not the new one,
// another gateway was faster.
func (m *redisMigration) setFormat(ctx context.Context, from, to string) (string, error) {
	now, err := m.conn.Eval(ctx, formatSource, []string{redisFormatKey, objectsFormatKey}, from, to).Text()
	if err != nil {
		return "", m.store.explain(err)
	}
	return now, nil
}

// conversionGuard is put before each script of a step.
const conversionGuard = `if redis.call('GET', KEYS[1]) ~= ARGV[1] or redis.call('GET', KEYS[2]) ~= ARGV[1] then return 'converted' end
`

// run runs a script of the step, unless another gateway has finished the step. The script's own keys start at KEYS[3], its arguments at
// ARGV[2]. It must take far less than redisTimeout, because the server does nothing else meanwhile.
func (m *redisMigration) run(ctx context.Context, source string, keys []string, args ...any) error {
	keys = append([]string{redisFormatKey, objectsFormatKey}, keys...)
	answer, err := m.conn.Eval(ctx, conversionGuard+source, keys, append([]any{m.during}, args...)...).Result()
	switch {
	case errors.Is(err, redis.Nil): // a script that returns nothing
		return nil
	case err != nil:
		return m.store.explain(err)
	case answer == any("converted"):
		return errConverted
	}
	return nil
}

// eachState runs a script on all states of policies, a few at a time, as KEYS from 3 on. The script may get a state more than once.
func (m *redisMigration) eachState(ctx context.Context, source string) error {
	var cursor uint64
	for {
		keys, next, err := m.conn.Scan(ctx, cursor, redisPrefix+"*", redisScan).Result()
		if err != nil {
			return m.store.explain(err)
		}
		for piece := range slices.Chunk(keys, redisConversionPiece) {
			if err := m.run(ctx, source, piece); err != nil {
				return err
			}
			m.converted.Add(int64(len(piece)))
		}
		if next == 0 {
			return nil
		}
		cursor = next
	}
}
