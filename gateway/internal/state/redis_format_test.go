package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/xebec-serving/xebec/gateway/internal/state/redistest"
)

// Two made-up formats with steps to the current one. In format a the fields of a state have no prefix and their unit is a thousandth. In
// formats a and b the head of objects lacks the bytes of the history.
var syntheticFormats = []format{
	{adds: "thousandths", redis: "a"},
	{adds: "numbers with a prefix", redis: "b", redisStep: func(ctx context.Context, m *redisMigration) error {
		return m.eachState(ctx, `
			for i = 3, #KEYS do
				local state = redis.call('HGETALL', KEYS[i])
				for j = 1, #state, 2 do
					if not string.match(state[j], '^[nw]:') then
						redis.call('HSET', KEYS[i], 'n:' .. state[j], string.format('%.17g', state[j + 1] / 1000))
						redis.call('HDEL', KEYS[i], state[j])
					end
				end
			end`)
	}},
	{adds: "bytes of the history", redis: "1", redisStep: func(ctx context.Context, m *redisMigration) error {
		return m.run(ctx, `
			local head = redis.call('GET', KEYS[3])
			if head and string.match(head, '^%d+ %x+ %d+ %d+ %d+ %d+$') then
				local bytes = 0
				for _, event in ipairs(redis.call('HVALS', KEYS[4])) do bytes = bytes + #event end
				redis.call('SET', KEYS[3], head .. ' ' .. bytes)
			end`, []string{objectsPrefix + "head", objectsPrefix + "events"})
	}},
}

// openSynthetic opens a store that knows the synthetic formats up to and including last.
func openSynthetic(t testing.TB, where, last string) *redisStore {
	t.Helper()
	s := mustOpen(t, where).(*redisStore)
	at := slices.IndexFunc(syntheticFormats, func(f format) bool { return f.redis == last })
	s.formats = syntheticFormats[:at+1]
	return s
}

// A syntheticStore is a database of format a on a server of its own, and the content that it must have after the conversion.
type syntheticStore struct {
	*redistest.Server
	client  *redis.Client
	writer  *redisStore // wrote everything
	updates []Update
	totals  [][]Total
	objects Changes
	history []Event
}

// startSynthetic writes a store in the current format, with states, objects, deleted objects and a history, and converts it back to
// format a.
func startSynthetic(t *testing.T, states int, config redistest.Config) *syntheticStore {
	t.Helper()
	s := &syntheticStore{Server: redistest.Start(t, config)}
	s.client, s.writer = raw(t, s.Server), openSynthetic(t, s.URL(), "1")
	for i := range states {
		s.updates = append(s.updates, Update{Key{"f", "exp3", fmt.Sprint(i)}, []Field{{"a/weight", float64(i), 0.125}, {"b/weight", -1, 0}}, 1})
	}
	s.totals = merge(t, s.writer, s.updates...)
	for i := range 3 {
		commit(t, s.writer, Commit{Base: uint64(i), Put: []Object{object("Model", fmt.Sprint(i), "x")}, Events: []Event{event("m", fmt.Sprint(i))}})
	}
	commit(t, s.writer, Commit{Base: 3, Delete: []ObjectKey{objectKey("1")}, Events: []Event{event("m", "gone")}})
	s.objects, s.history = changes(t, s.writer, 0), history(t, s.writer, "", 10)

	ctx := short(t)
	pipe := s.client.Pipeline()
	for _, u := range s.updates {
		key := redisKey(u.Key)
		for field, value := range s.client.HGetAll(ctx, key).Val() {
			if name, isNumber := strings.CutPrefix(field, numberPrefix); isNumber {
				x, err := strconv.ParseFloat(value, 64)
				if err != nil {
					t.Fatal(err)
				}
				pipe.HSet(ctx, key, name, int64(math.Round(x*1000)))
				pipe.HDel(ctx, key, field)
			}
		}
	}
	head := headOf(t, s.client)
	pipe.Set(ctx, objectsPrefix+"head", head[:strings.LastIndexByte(head, ' ')], 0)
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	s.setFormat(t, "a")
	return s
}

func (s *syntheticStore) setFormat(t *testing.T, value string) {
	t.Helper()
	setFormat(t, s.client, value)
}

// setFormat writes both format keys.
func setFormat(t *testing.T, client *redis.Client, value string) {
	t.Helper()
	for _, key := range []string{redisFormatKey, objectsFormatKey} {
		if err := client.Set(short(t), key, value, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *syntheticStore) wantFormat(t *testing.T, want string) {
	t.Helper()
	for _, key := range []string{redisFormatKey, objectsFormatKey} {
		if got := s.client.Get(short(t), key).Val(); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}

// wantConverted checks that the converted store, and a store with the real formats, read everything exactly as it was written.
func (s *syntheticStore) wantConverted(t *testing.T, converted *redisStore) {
	t.Helper()
	for _, store := range []Backend{converted, mustOpen(t, s.URL())} {
		var keys []Key
		for _, u := range s.updates {
			keys = append(keys, u.Key)
		}
		got, err := store.Load(short(t), keys)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s.totals, got); diff != "" {
			t.Fatalf("the states differ:\n%s", diff)
		}
		if diff := cmp.Diff(s.objects, changes(t, store, 0)); diff != "" {
			t.Errorf("the objects differ:\n%s", diff)
		}
		if diff := cmp.Diff(s.history, history(t, store, "", 10)); diff != "" {
			t.Errorf("the history differs:\n%s", diff)
		}
	}
	s.wantFormat(t, "1")
	// The writers survive: a retry of an update from before the conversion does not count twice.
	if diff := cmp.Diff(s.totals, merge(t, s.writer, s.updates...)); diff != "" {
		t.Errorf("retried updates change the states:\n%s", diff)
	}
	commit(t, s.writer, Commit{Base: s.objects.Revision})
}

// dump returns the whole database, for comparisons.
func (s *syntheticStore) dump(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, key := range s.client.Keys(short(t), "*").Val() {
		all[key] = s.client.Dump(short(t), key).Val()
	}
	return all
}

// calls has every way to use a store.
var calls = map[string]func(ctx context.Context, s Backend) error{
	"merge": func(ctx context.Context, s Backend) error {
		_, err := s.Merge(ctx, []Update{add(Key{"g", "exp3", ""}, 1, 1), add(Key{"g", "exp3", "c"}, 1, 1)})
		return err
	},
	"load": func(ctx context.Context, s Backend) error {
		_, err := s.Load(ctx, []Key{{"f", "exp3", "0"}})
		return err
	},
	"forget": func(ctx context.Context, s Backend) error { return s.Forget(ctx, "g") },
	"commit": func(ctx context.Context, s Backend) error {
		return onlyStale(s.Commit(ctx, &Commit{ID: randomID(), Base: 99}))
	},
	"changes": func(ctx context.Context, s Backend) error { _, err := s.Changes(ctx, 0); return err },
	"news":    func(ctx context.Context, s Backend) error { _, err := s.Changes(ctx, 4); return err },
	"history": func(ctx context.Context, s Backend) error { _, err := s.History(ctx, "m", 1); return err },
}

// onlyStale drops a StaleError, which shows that the store has processed the commit.
func onlyStale(_ uint64, err error) error {
	if errors.As(err, new(*StaleError)) {
		return nil
	}
	return err
}

// Every call converts an older database first.
func TestAnyCallConvertsTheDatabase(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			s := startSynthetic(t, 3, redistest.Config{})
			converted := openSynthetic(t, s.URL(), "1")
			if err := call(short(t), converted); err != nil {
				t.Fatal(err)
			}
			s.wantFormat(t, "1")
			s.wantConverted(t, converted)
		})
	}
}

// A database with one format key, because only states or only objects were ever written, gets both. Otherwise an older gateway could start
// the other half in its own format.
func TestDatabaseWithOneFormatKey(t *testing.T) {
	for _, missing := range []string{redisFormatKey, objectsFormatKey} {
		for name, call := range calls {
			t.Run(name+" without "+missing, func(t *testing.T) {
				s := startSynthetic(t, 0, redistest.Config{})
				if missing == objectsFormatKey {
					s.client.FlushDB(short(t))
					s.setFormat(t, "a")
				}
				s.client.Del(short(t), missing)
				if err := call(short(t), openSynthetic(t, s.URL(), "1")); err != nil {
					t.Fatal(err)
				}
				s.wantFormat(t, "1")
			})
		}
	}
	// A new database gets both too, whichever half is written first.
	for _, name := range []string{"merge", "commit"} {
		s := &syntheticStore{Server: redistest.Start(t, redistest.Config{})}
		s.client = raw(t, s.Server)
		store := mustOpen(t, s.URL())
		for _, call := range []string{"load", "forget", "changes", "history"} {
			if err := calls[call](short(t), store); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.client.DBSize(short(t)).Val(); n != 0 {
			t.Errorf("reading has written %d keys", n)
		}
		if name == "merge" {
			merge(t, store, add(someKey, 1, 1))
		} else {
			commit(t, store, Commit{})
		}
		s.wantFormat(t, "1")
	}
}

// through starts a proxy and returns its URL. The proxy calls each(n) before it passes on the nth command of the step, n starting at 1. The first
// and the last command of a step move the format keys.
func (s *syntheticStore) through(t *testing.T, step string, each func(n int)) (where string) {
	t.Helper()
	proxy := startLossy(t, s.Addr(), mustListen(t))
	n := 0
	var next *trigger
	next = &trigger{step, func() {
		proxy.on.Store(next)
		n++
		each(n)
	}}
	proxy.on.Store(next)
	return "redis://" + proxy.listener.Addr().String()
}

// convertAndDie runs in a child process that the test kills.
func convertAndDie(where string) error {
	s, err := OpenRedis(where)
	if err != nil {
		return err
	}
	defer s.Close()
	s.(*redisStore).formats = syntheticFormats
	_, err = s.Changes(context.Background(), 0)
	return err
}

// A gateway killed at any point of a conversion leaves a database that older gateways cannot use and the next gateway finishes converting.
func TestGatewayIsKilledDuringAConversion(t *testing.T) {
	const states = 3*redisConversionPiece + 1
	for _, c := range []struct {
		step     string
		commands int // of the step
	}{{"a>b", 6}, {"b>1", 3}} {
		for kill := 1; kill <= c.commands; kill++ {
			t.Run(fmt.Sprintf("%s command %d", c.step, kill), func(t *testing.T) {
				s := startSynthetic(t, states, redistest.Config{})
				process := make(chan *os.Process, 1)
				cmd := child(t, "convert", s.through(t, c.step, func(n int) {
					if n == kill {
						(<-process).Kill()
					}
				}))
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				process <- cmd.Process
				if err := cmd.Wait(); cmd.ProcessState.ExitCode() != -1 {
					t.Fatalf("the step has no command %d: %v %s", kill, err, &out)
				}
				older := openSynthetic(t, s.URL(), "a")
				for name, call := range calls {
					if c.step == "a>b" && kill == 1 {
						break // the command that locks out older gateways may arrive late
					}
					if err := call(short(t), older); err == nil {
						t.Errorf("an older gateway can %s", name)
					} else {
						wantError(t, err, "this program reads and writes format \"a\"", "a newer one, or another database")
					}
				}
				s.wantConverted(t, openSynthetic(t, s.URL(), "1"))
			})
		}
	}
}

// A server killed during a conversion keeps every acknowledged write. After its restart the next call finishes the conversion.
func TestServerIsKilledDuringAConversion(t *testing.T) {
	for kill := 1; kill <= 6; kill++ {
		s := startSynthetic(t, 3*redisConversionPiece+1, redistest.Config{AppendOnly: true})
		restarted := make(chan struct{})
		converted := openSynthetic(t, s.through(t, "a>b", func(n int) {
			if n == kill {
				defer close(restarted)
				s.Kill()
				s.Restart()
			}
		}), "1")
		_, err := converted.Changes(short(t), 0)
		<-restarted
		wantError(t, err, `the conversion of the store from format "a" to "b" has stopped`, "the next call continues it")
		changes(t, converted, 0)
		s.wantConverted(t, converted)
	}
}

// A gateway stops before one command of the step, and another gateway finishes the conversion meanwhile. The first one must then change
// nothing, even if data looks like the old format.
func TestOneGatewayOvertakesAnother(t *testing.T) {
	for stop := 1; stop <= 6; stop++ {
		s := startSynthetic(t, 3*redisConversionPiece+1, redistest.Config{})
		faster := openSynthetic(t, s.URL(), "1")
		slower := openSynthetic(t, s.through(t, "a>b", func(n int) {
			if n != stop {
				return
			}
			if _, err := faster.Changes(context.Background(), 0); err != nil {
				t.Error(err)
			}
			for _, u := range s.updates {
				s.client.HSet(context.Background(), redisKey(u.Key), "c/weight", 1000)
			}
		}), "1")
		if err := slower.Forget(short(t), "other"); err != nil {
			t.Fatal(err)
		}
		for _, u := range s.updates {
			if got := s.client.HGet(short(t), redisKey(u.Key), "c/weight").Val(); got != "1000" {
				t.Fatalf("stopped before command %d, the slower gateway has converted %v again", stop, u.Key)
			}
			s.client.HDel(short(t), redisKey(u.Key), "c/weight")
		}
		s.wantConverted(t, slower)
	}
}

// Several gateways find the same old database at the same time, each with several calls.
func TestGatewaysConvertAtOnce(t *testing.T) {
	s := startSynthetic(t, 2*redisScan+1, redistest.Config{})
	stores := make([]*redisStore, 4)
	for i := range stores {
		stores[i] = openSynthetic(t, s.URL(), "1")
	}
	var group sync.WaitGroup
	for _, store := range stores {
		for name, call := range calls {
			group.Go(func() {
				if err := call(context.Background(), store); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
	}
	group.Wait()
	s.wantConverted(t, stores[0])
}

// An older gateway can neither read nor change the database once a newer one has begun to convert it.
func TestOlderGatewayIsLockedOut(t *testing.T) {
	s := startSynthetic(t, 3, redistest.Config{})
	older := openSynthetic(t, s.URL(), "a")
	if err := calls["forget"](short(t), older); err != nil {
		t.Fatalf("before the conversion: %v", err)
	}
	refused := func(want ...string) {
		t.Helper()
		before := s.dump(t)
		for name, call := range calls {
			err := call(short(t), older)
			wantError(t, err, append(want, s.Addr(), "use the version of the program that wrote it or a newer one")...)
			if name == "commit" {
				wantError(t, err, "nothing was changed")
			}
		}
		if diff := cmp.Diff(before, s.dump(t)); diff != "" {
			t.Errorf("an older gateway has changed the database:\n%s", diff)
		}
	}
	s.setFormat(t, "a>b")
	refused(`a newer version has begun to convert the store from format "a" to "b"`)
	newer := openSynthetic(t, s.URL(), "1")
	changes(t, newer, 0)
	refused(`the store has format "1", and this program reads and writes format "a"`)
	s.wantConverted(t, newer)
}

// A database of a newer or unknown format is refused and left unchanged.
func TestNewerRedisFormatIsRefused(t *testing.T) {
	s := startSynthetic(t, 3, redistest.Config{})
	store := openSynthetic(t, s.URL(), "1")
	changes(t, store, 0)
	for _, format := range []string{"2", "1>2", "a>1", "", ">", "x"} {
		s.setFormat(t, format)
		before := s.dump(t)
		for _, call := range calls {
			wantError(t, call(short(t), store), `this program reads and writes format "1"`, "a newer one, or another database (the number that ends the URL)", s.Addr())
		}
		if diff := cmp.Diff(before, s.dump(t)); diff != "" {
			t.Errorf("a database of format %q was changed:\n%s", format, diff)
		}
	}
	s.setFormat(t, "1")
	s.wantConverted(t, store)
}

// Format keys with different values are an error, and nothing is converted.
func TestFormatKeysThatDisagree(t *testing.T) {
	s := startSynthetic(t, 3, redistest.Config{})
	s.client.Set(short(t), redisFormatKey, "b", 0)
	before := s.dump(t)
	for _, call := range calls {
		wantError(t, call(short(t), openSynthetic(t, s.URL(), "1")), `xebec:format says format "b" and xebec:objects:format says "a"`, "restore the database from a copy")
	}
	if diff := cmp.Diff(before, s.dump(t)); diff != "" {
		t.Errorf("the database was changed:\n%s", diff)
	}
}

// A caller whose context ends gets an error, and the conversion continues without it.
func TestCallerLeavesAConversion(t *testing.T) {
	s := startSynthetic(t, 3*redisConversionPiece+1, redistest.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan struct{})
	store := openSynthetic(t, s.through(t, "a>b", func(n int) {
		if n == 3 {
			cancel()
			<-left
		}
	}), "1")
	_, err := store.Changes(ctx, 0)
	close(left)
	wantError(t, err, `is being converted to format "1", 16 states so far`, "try again later", store.Name())
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v does not wrap %v", err, context.Canceled)
	}
	changes(t, store, 0)
	s.wantConverted(t, store)
}

// Close interrupts a conversion, and the next gateway finishes it.
func TestCloseEndsAConversion(t *testing.T) {
	s := startSynthetic(t, 3*redisConversionPiece+1, redistest.Config{})
	var store *redisStore
	closed := make(chan struct{})
	store = openSynthetic(t, s.through(t, "a>b", func(n int) {
		if n == 3 {
			go func() {
				store.Close()
				close(closed)
			}()
			<-closed
		}
	}), "1")
	_, err := store.Changes(short(t), 0)
	wantError(t, err, "the conversion of the store")
	<-closed
	_, err = store.Changes(short(t), 0)
	wantError(t, err, "is closed")
	s.wantConverted(t, openSynthetic(t, s.URL(), "1"))
}

// A missing permission stops the conversion with an error that says so. With the permission the next call finishes it.
func TestServersThatRefuseAConversion(t *testing.T) {
	s := startSynthetic(t, 3*redisConversionPiece+1, redistest.Config{})
	store := openSynthetic(t, s.URL(), "1")
	acl := func(rule string) {
		t.Helper()
		if err := s.client.Do(short(t), "ACL", "SETUSER", "default", rule).Err(); err != nil {
			t.Fatal(err)
		}
	}
	acl("-hdel")
	for name, call := range calls {
		err := call(short(t), store)
		wantError(t, err, `the conversion of the store from format "a" to "b" has stopped`, "may not do this")
		if name == "commit" && !strings.HasPrefix(err.Error(), "nothing was changed") {
			t.Errorf("a commit says %v, want that nothing was changed", err)
		}
	}
	acl("+hdel")
	s.wantConverted(t, store)
}

// A database that is emptied during a conversion ends up empty in the new format, without an error.
func TestDatabaseIsEmptiedDuringAConversion(t *testing.T) {
	s := startSynthetic(t, 3*redisConversionPiece+1, redistest.Config{})
	store := openSynthetic(t, s.through(t, "a>b", func(n int) {
		if n == 3 {
			s.client.FlushDB(context.Background())
		}
	}), "1")
	wantChanges(t, store, 0, "0 all")
	commit(t, store, Commit{Put: []Object{object("Model", "a", "1")}})
	s.wantFormat(t, "1")
}

// A server that hangs during a conversion delays no caller beyond the timeouts of this package.
func TestServerHangsDuringAConversion(t *testing.T) {
	s := startSynthetic(t, 3*redisConversionPiece+1, redistest.Config{})
	var once sync.Once
	store := openSynthetic(t, s.through(t, "a>b", func(n int) {
		if n == 3 {
			once.Do(s.Pause)
		}
	}), "1")
	ctx := short(t)
	_, err := store.Changes(ctx, 0)
	wantError(t, err, "the conversion of the store", "does not answer in time")
	if ctx.Err() != nil {
		t.Fatal("the call ended only with its context")
	}
	s.Resume()
	for deadline := time.Now().Add(time.Minute); ; {
		// The first calls may still use a connection that has timed out.
		if _, err = store.Changes(short(t), 0); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	s.wantConverted(t, store)
}
