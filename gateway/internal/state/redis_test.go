package state

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/xebec-serving/xebec/gateway/internal/state/redistest"
)

func TestTwoWritersConverge(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	one, two := mustOpen(t, server.URL()), mustOpen(t, server.URL())
	// Each starts from its own base. The first update's base wins, and both deltas count.
	wantTotals(t, merge(t, one, Update{someKey, []Field{{"n", 10, 1}}, 1})[0], Total{"n", 11})
	wantTotals(t, merge(t, two, Update{someKey, []Field{{"n", 20, 2}}, 1})[0], Total{"n", 13})
	done := make(chan error, 2)
	for _, s := range []Store{one, two} {
		go func() {
			for seq := range 100 {
				if _, err := s.Merge(context.Background(), []Update{add(someKey, uint64(seq+2), 1)}); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	wantTotals(t, merge(t, one, Update{Key: someKey, Seq: 1000})[0], Total{"n", 213})
	wantTotals(t, merge(t, two, Update{Key: someKey, Seq: 1000})[0], Total{"n", 213})
}

func TestLostAnswerIsCountedOnce(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	proxy := startLossy(t, server.Addr(), mustListen(t))
	s := mustOpen(t, "redis://"+proxy.listener.Addr().String())
	merge(t, s, add(someKey, 1, 1)) // there is an established connection now

	updates := []Update{add(someKey, 2, 1), add(Key{"digits", "exp3", "ann"}, 1, 1)}
	proxy.lose <- struct{}{}
	_, err := s.Merge(short(t), updates)
	wantError(t, err, "the connection failed", s.Name())
	if got := raw(t, server).HGet(short(t), redisKey(someKey), "n:n").Val(); got != "2" {
		t.Fatalf("the server has %q: want 2, because only the answer was lost", got)
	}
	got := merge(t, s, updates...)
	wantTotals(t, got[0], Total{"n", 2})
	wantTotals(t, got[1], Total{"n", 1})
}

// TLS to a real server: rediss:// works, and an untrusted certificate is refused.
func TestTLS(t *testing.T) {
	server := redistest.Start(t, redistest.Config{Password: "quite-secret"})
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	plain := mustListen(t)
	startLossy(t, server.Addr(), tls.NewListener(plain, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: private}}}))
	url := "rediss://:quite-secret@" + plain.Addr().String()

	_, err = mustOpen(t, url).Merge(short(t), []Update{add(someKey, 1, 1)})
	wantError(t, err, "certificate", "rediss://"+plain.Addr().String())
	options, name, err := parseRedisURL(url)
	if err != nil {
		t.Fatal(err)
	}
	options.TLSConfig.RootCAs = x509.NewCertPool()
	options.TLSConfig.RootCAs.AddCert(certificate)
	trusting := openRedis(options, name)
	defer trusting.Close()
	wantTotals(t, merge(t, trusting, add(someKey, 1, 1))[0], Total{"n", 1})
	wantTotals(t, load(t, mustOpen(t, server.URL()), someKey), Total{"n", 1})
}

// mergeWithRetries retries an update until it is answered.
func mergeWithRetries(ctx context.Context, s Store, u Update) ([]Total, error) {
	for {
		got, err := s.Merge(ctx, []Update{u})
		if err == nil {
			return got[0], nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
	}
}

func mergeUntilDone(t *testing.T, s Store, u Update) []Total {
	t.Helper()
	got, err := mergeWithRetries(short(t), s, u)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestKilledServerLosesAndRepeatsNothing(t *testing.T) {
	server := redistest.Start(t, redistest.Config{AppendOnly: true})
	s, ctx := mustOpen(t, server.URL()), short(t)
	const updates, kills = 300, 3
	begun := make(chan int)
	go func() {
		defer close(begun)
		for i := range updates {
			begun <- i
			got, err := mergeWithRetries(ctx, s, add(someKey, uint64(i+1), 1))
			if err != nil || len(got) != 1 || got[0].Value != float64(i+1) {
				t.Errorf("after update %d the state is %v (%v)", i+1, got, err)
				return
			}
		}
	}()
	for i := range begun {
		if i%(updates/kills) == updates/kills/2 {
			server.Kill() // while update i is in flight
			server.Restart()
		}
	}
	wantTotals(t, load(t, s, someKey), Total{"n", updates})
}

func TestEmptiedServerStartsAtBase(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	s := mustOpen(t, server.URL())
	merge(t, s, add(someKey, 1, 5))
	server.Kill()
	_, err := s.Merge(short(t), []Update{add(someKey, 2, 1)})
	wantError(t, err, s.Name())
	server.Restart()
	if got := mergeUntilDone(t, s, Update{someKey, []Field{{"n", 5, 1}}, 2}); got[0] != (Total{"n", 6}) {
		t.Errorf("got %v, want 6: the base that this writer knows, and its delta", got)
	}
}

func TestServerMayStartLater(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	server.Kill()
	s := mustOpen(t, server.URL())
	_, err := s.Merge(short(t), []Update{add(someKey, 1, 1)})
	wantError(t, err, "cannot be reached", "start the server", s.Name())
	_, err = s.Load(short(t), []Key{someKey})
	wantError(t, err, "cannot be reached")
	server.Restart()
	if got := mergeUntilDone(t, s, add(someKey, 1, 1)); got[0] != (Total{"n", 1}) {
		t.Errorf("got %v, want 1", got)
	}
}

// A server that hangs delays no call beyond the timeouts of this package, which are far below the context's minute. After it resumes it
// applies what it was sent, once.
func TestHangingServerTimesOut(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	connected, fresh := mustOpen(t, server.URL()), mustOpen(t, server.URL())
	merge(t, connected, add(someKey, 1, 1))
	server.Pause()
	ctx := short(t)
	_, mergeErr := connected.Merge(ctx, []Update{add(someKey, 2, 1)})
	_, freshErr := fresh.Merge(ctx, []Update{add(someKey, 1, 1)})
	_, loadErr := connected.Load(ctx, []Key{someKey})
	for _, err := range []error{mergeErr, freshErr, loadErr, connected.Forget(ctx, "digits")} {
		wantError(t, err, "does not answer in time", connected.Name())
	}
	if ctx.Err() != nil {
		t.Fatal("the calls ended only with their context")
	}
	server.Resume()
	wantTotals(t, mergeUntilDone(t, connected, add(someKey, 2, 1)), Total{"n", 2})
	wantTotals(t, mergeUntilDone(t, fresh, add(someKey, 1, 1)), Total{"n", 3})
}

func TestDeadlineOfTheCallerHolds(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	s := mustOpen(t, server.URL())
	merge(t, s, add(someKey, 1, 1))
	server.Pause()
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(20*time.Millisecond))
	defer cancel()
	_, err := s.Merge(ctx, []Update{add(someKey, 2, 1)})
	wantError(t, err, "does not answer in time")
	server.Resume()
	wantTotals(t, mergeUntilDone(t, s, add(someKey, 2, 1)), Total{"n", 2})
}

func TestWrongPassword(t *testing.T) {
	server := redistest.Start(t, redistest.Config{Password: "quite-secret"})
	merge(t, mustOpen(t, server.URL()), add(someKey, 1, 1))
	for url, want := range map[string]string{
		"redis://" + server.Addr():                       "requires a password",
		"redis://:not-it@" + server.Addr():               "does not accept the user or the password",
		"redis://unknown:not-it@" + server.Addr():        "does not accept the user or the password",
		"redis://:quite-secret@" + server.Addr() + "/99": "fewer databases",
	} {
		s := mustOpen(t, url)
		_, mergeErr := s.Merge(short(t), []Update{add(someKey, 1, 1)})
		_, loadErr := s.Load(short(t), []Key{someKey})
		for _, err := range []error{mergeErr, loadErr} {
			wantError(t, err, want, s.Name())
			if text := err.Error() + s.Name(); strings.Contains(text, "not-it") || strings.Contains(text, "secret") {
				t.Errorf("the message has the password: %s", text)
			}
		}
	}
}

func TestRedisURLs(t *testing.T) {
	for _, c := range []struct{ url, name, err string }{
		{"redis://localhost", "redis://localhost:6379/0", ""},
		{"redis://localhost/", "redis://localhost:6379/0", ""},
		{"rediss://redis.example:6380/3", "rediss://redis.example:6380/3", ""},
		{"redis://ann:secret@10.0.0.1:1234/1", "redis://10.0.0.1:1234/1", ""},
		{"redis://:secret@[::1]", "redis://[::1]:6379/0", ""},
		{"redis://", "", "names no host"},
		{"redis://:secret@:6379", "", "names no host"},
		{"redis://host:0", "", "port"},
		{"redis://host:65536", "", "port"},
		{"redis://host/first-secret", "", "database"},
		{"redis://host/0/1", "", "database"},
		{"redis://host/-1", "", "database"},
		{"redis://host?password=secret", "", "parameters"},
		{"redis://host#secret", "", "parameters"},
		{"redis://:sec/ret@host", "", "%2F"},
		{"redis://:secret@ho st", "", "cannot be read"},
		{"redis://:1/secret@host", "", "names no host"},
	} {
		s, err := Open(c.url)
		if c.err != "" {
			wantError(t, err, c.err, "expected redis://")
			if strings.Contains(fmt.Sprint(err), "secret") {
				t.Errorf("%s: the error has what may be a password: %v", c.url, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if s.Name() != c.name || !s.Shared() {
			t.Errorf("%s has the name %s, shared %v: want %s", c.url, s.Name(), s.Shared(), c.name)
		}
		s.Close()
	}
	for where, want := range map[string]string{"": "is empty", "postgres://host": `"postgres://"`, "unix:///tmp/x": `"unix://"`} {
		_, err := Open(where)
		wantError(t, err, want, "expected redis://")
	}
}

func TestForeignKeysAreRefused(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	s, client := mustOpen(t, server.URL()), raw(t, server)
	ctx := short(t)
	many := make([]any, 0, 2*(maxFields+writersRemembered+1))
	for i := range maxFields + writersRemembered + 1 {
		many = append(many, fmt.Sprintf("n:%d", i), "1")
	}
	for context, c := range map[string]struct {
		spoil redis.Cmder
		want  string
	}{
		"text":   {client.Set(ctx, redisKey(Key{"f", "exp3", "text"}), "hello", 0), "a string, not a hash"},
		"list":   {client.RPush(ctx, redisKey(Key{"f", "exp3", "list"}), 1), "a list, not a hash"},
		"number": {client.HSet(ctx, redisKey(Key{"f", "exp3", "number"}), "n:n", "much"), `field "n:n" is not`},
		"nan":    {client.HSet(ctx, redisKey(Key{"f", "exp3", "nan"}), "n:n", "nan"), `field "n:n" is not`},
		"inf":    {client.HSet(ctx, redisKey(Key{"f", "exp3", "inf"}), "n:n", "inf"), `field "n:n" is not`},
		"field":  {client.HSet(ctx, redisKey(Key{"f", "exp3", "field"}), "weight", "1"), `field "weight" is not`},
		"many":   {client.HSet(ctx, redisKey(Key{"f", "exp3", "many"}), many...), "4353 fields"},
	} {
		t.Run(context, func(t *testing.T) {
			if c.spoil.Err() != nil {
				t.Fatal(c.spoil.Err())
			}
			k := Key{"f", "exp3", context}
			good := Key{"f", "exp3", "good for " + context}
			totals, err := s.Merge(ctx, []Update{add(k, 1, 1), add(good, 1, 1)})
			wantRefused(t, err, 0, c.want)
			wantTotals(t, totals[1], Total{"n", 1})
			totals, err = s.Load(ctx, []Key{good, k})
			wantRefused(t, err, 1, c.want)
			wantTotals(t, totals[0], Total{"n", 1})
		})
	}
	if err := s.Forget(ctx, "f"); err != nil {
		t.Fatal(err)
	}
	wantTotals(t, merge(t, s, add(Key{"f", "exp3", "text"}, 1, 1))[0], Total{"n", 1})
}

func TestWritersAreForgotten(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	s, client := mustOpen(t, server.URL()).(*redisStore), raw(t, server)
	ctx, key := short(t), redisKey(someKey)
	now := client.Time(ctx).Val().Unix()
	seen := func(secondsAgo int64) string { return fmt.Sprintf("%020d %d", 7, now-secondsAgo) }
	const hour, day = 3600, 24 * 3600
	client.HSet(ctx, key, "w:recent", seen(hour), "w:nearly", seen(day-hour), "w:old", seen(day+hour), "w:unreadable", "x")
	merge(t, s, add(someKey, 1, 1))
	for field, want := range map[string]bool{"w:recent": true, "w:nearly": true, "w:old": false, "w:unreadable": false, "w:" + s.writer: true} {
		if got := client.HExists(ctx, key, field).Val(); got != want {
			t.Errorf("field %s exists: %v, want %v", field, got, want)
		}
	}
	// Many writers in one day, as with a gateway that keeps crashing: the most recent ones are remembered.
	for i := range int64(writersRemembered - 1) {
		client.HSet(ctx, key, fmt.Sprintf("w:%d", i), seen(i))
	}
	merge(t, s, add(someKey, 2, 1))
	if n := client.HLen(ctx, key).Val(); n != writersRemembered+1 {
		t.Errorf("there are %d fields, want %d writers and one number", n, writersRemembered)
	}
	for field, want := range map[string]bool{"w:0": true, "w:254": true, "w:recent": false, "w:nearly": false, "w:" + s.writer: true} {
		if got := client.HExists(ctx, key, field).Val(); got != want {
			t.Errorf("field %s exists: %v, want %v", field, got, want)
		}
	}
	wantTotals(t, merge(t, s, add(someKey, 2, 1))[0], Total{"n", 2})
}

// Each way in which a server can refuse writes is an error that says so, and the failed update counts once after a retry.
func TestServersThatRefuseWrites(t *testing.T) {
	for _, c := range []struct {
		name        string
		spoil, heal func(ctx context.Context, c *redis.Client) error
		want        string
	}{
		{"full", func(ctx context.Context, c *redis.Client) error { return c.ConfigSet(ctx, "maxmemory", "1").Err() },
			func(ctx context.Context, c *redis.Client) error { return c.ConfigSet(ctx, "maxmemory", "0").Err() }, "no memory left"},
		{"a replica", func(ctx context.Context, c *redis.Client) error { return c.ReplicaOf(ctx, "127.0.0.1", "1").Err() },
			func(ctx context.Context, c *redis.Client) error { return c.ReplicaOf(ctx, "no", "one").Err() }, "is a replica"},
		{"no permission", func(ctx context.Context, c *redis.Client) error {
			return c.Do(ctx, "ACL", "SETUSER", "default", "-hset").Err()
		}, func(ctx context.Context, c *redis.Client) error {
			return c.Do(ctx, "ACL", "SETUSER", "default", "+hset").Err()
		}, "may not do this"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := redistest.Start(t, redistest.Config{})
			s, client := mustOpen(t, server.URL()), raw(t, server)
			ctx := short(t)
			merge(t, s, add(someKey, 1, 1))
			if err := c.spoil(ctx, client); err != nil {
				t.Fatal(err)
			}
			_, err := s.Merge(ctx, []Update{add(someKey, 2, 1)})
			wantError(t, err, c.want, s.Name())
			var refused *RefusedError
			if errors.As(err, &refused) {
				t.Errorf("an error of the server was reported as a refused update: %v", err)
			}
			wantTotals(t, load(t, s, someKey), Total{"n", 1})
			if err := c.heal(ctx, client); err != nil {
				t.Fatal(err)
			}
			wantTotals(t, merge(t, s, add(someKey, 2, 1))[0], Total{"n", 2})
		})
	}
}

// With two updates of one state in a pipeline, the first could fail and the second succeed, and the first would be lost. Each pipeline
// starts with one EVAL, which is counted here.
func TestUpdatesOfOneStateDoNotShareAPipeline(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	s := mustOpen(t, server.URL())
	other := Key{"digits", "exp3", "ann"}
	got := merge(t, s, add(someKey, 1, 1), add(someKey, 2, 1), add(other, 1, 1), add(someKey, 3, 1))
	wantTotals(t, got[3], Total{"n", 3})
	stats := raw(t, server).Info(short(t), "commandstats").Val()
	for _, want := range []string{"cmdstat_eval:calls=3,", "cmdstat_evalsha:calls=1,"} {
		if !strings.Contains(stats, want) {
			t.Errorf("want %s in\n%s", want, stats)
		}
	}
}

// If the server has lost its scripts, as after a restart, the same call sends the script again.
func TestScriptsMayBeFlushed(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	s, client := mustOpen(t, server.URL()), raw(t, server)
	other := Key{"digits", "exp3", "ann"}
	for seq := range uint64(3) {
		if err := client.ScriptFlush(short(t)).Err(); err != nil {
			t.Fatal(err)
		}
		got := merge(t, s, add(someKey, seq+1, 1), add(other, seq+1, 1))
		wantTotals(t, got[1], Total{"n", float64(seq + 1)})
	}
}

// Answers that make no sense are an error and return no state.
func TestNonsenseAnswers(t *testing.T) {
	s := openRedis(&redis.Options{Addr: "127.0.0.1:1"}, "redis://nowhere")
	defer s.Close()
	for _, answer := range []any{nil, int64(1), "ok", []any{}, []any{int64(1)}, []any{"yes"}, []any{"ok", "n:name"}, []any{"ok", "n:name", "much"}, []any{"ok", "n:name", "nan"}, []any{"ok", "n:name", ""},
		[]any{"ok", "name", "1"}, []any{"ok", "n:name", "1", "n:x"}, []any{"ok", "n:name", int64(1)}, make([]any, 2*maxFields+2)} {
		if totals, reason, err := s.parseState(answer); err == nil {
			t.Errorf("%v parses as %v, %q", answer, totals, reason)
		}
	}
	totals, reason, err := s.parseState([]any{"ok", "n:b", "2.5", "n:a", "-1e-3"})
	if reason != "" || err != nil {
		t.Fatal(reason, err)
	}
	wantTotals(t, totals, Total{"a", -1e-3}, Total{"b", 2.5})
}
