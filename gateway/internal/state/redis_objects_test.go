package state

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/xebec-serving/xebec/gateway/internal/state/redistest"
)

func headOf(t *testing.T, client *redis.Client) string {
	t.Helper()
	return client.Get(short(t), objectsPrefix+"head").Val()
}

func TestTwoGatewaysSeeEachOthersCommits(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	one, two := mustOpen(t, server.URL()), mustOpen(t, server.URL())
	commit(t, one, Commit{Put: []Object{object("Model", "a", "1")}})
	wantChanges(t, two, 0, "1 all Model/a@1=1")
	_, err := two.Commit(short(t), &Commit{ID: randomID(), Base: 0, Put: []Object{object("Model", "a", "2")}})
	wantError(t, err, "has revision 1", "made for revision 0", "nothing was changed")
	commit(t, two, Commit{Base: 1, Delete: []ObjectKey{objectKey("a")}})
	wantChanges(t, one, 1, "2 Model/a@2=deleted")
	merge(t, one, add(someKey, 1, 1)) // states do not affect the revision of objects
	wantChanges(t, two, 2, "2")
}

// A poll without changes is one command, whatever the size of the store.
func TestPollWithoutChangesIsCheap(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	s, client := mustOpen(t, server.URL()), raw(t, server)
	commit(t, s, Commit{Put: []Object{object("Model", "a", "1")}})
	wantChanges(t, s, 0, "1 all Model/a@1=1")
	if err := client.ConfigResetStat(short(t)).Err(); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		wantChanges(t, s, 1, "1")
	}
	stats := client.Info(short(t), "commandstats").Val()
	if !strings.Contains(stats, "cmdstat_mget:calls=10,") || strings.Contains(stats, "cmdstat_eval") {
		t.Errorf("want 10 of MGET and no scripts in\n%s", stats)
	}
}

// Commit retries when an answer is lost, and the commit is applied once.
func TestCommitWhoseAnswerIsLost(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	proxy := startLossy(t, server.Addr(), mustListen(t))
	s := mustOpen(t, "redis://"+proxy.listener.Addr().String())
	var lost atomic.Int32
	lose := &trigger{"commit", func() { lost.Add(1); proxy.lose <- struct{}{} }}
	for base := range uint64(3) {
		proxy.on.Store(lose)
		if r := commit(t, s, Commit{Base: base, Put: []Object{object("Model", "a", fmt.Sprint(base))}, Events: []Event{event("a", "")}}); r != base+1 {
			t.Errorf("a commit whose answer was lost makes revision %d, want %d", r, base+1)
		}
	}
	if lost.Load() != 3 {
		t.Errorf("%d answers were lost, want 3", lost.Load())
	}
	wantChanges(t, s, 0, "3 all Model/a@3=2")
	if got := subjects(history(t, s, "", 10)); got != "3:a: 2:a: 1:a:" {
		t.Errorf("the history is %s", got)
	}
}

// If the server takes a commit and never answers, Commit returns an UnknownError. A retry after the server has resumed resolves it.
func TestCommitThatIsNeverAnswered(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	proxy := startLossy(t, server.Addr(), mustListen(t))
	s := mustOpen(t, "redis://"+proxy.listener.Addr().String())
	commit(t, s, Commit{Put: []Object{object("Model", "a", "1")}})
	pause := &trigger{"commit", server.Pause}
	next := Commit{ID: randomID(), Base: 1, Put: []Object{object("Model", "a", "2")}, Events: []Event{event("a", "2")}}
	proxy.on.Store(pause)
	_, err := s.Commit(short(t), &next)
	if !errors.As(err, new(*UnknownError)) {
		t.Fatalf("%v: want an UnknownError", err)
	}
	wantError(t, err, "not known", s.Name(), "does not answer in time")
	server.Resume()
	if r := commit(t, s, next); r != 2 {
		t.Errorf("the retried commit makes revision %d, want 2", r)
	}
	wantChanges(t, s, 0, "2 all Model/a@2=2")
	if got := subjects(history(t, s, "", 10)); got != "2:a:2" {
		t.Errorf("the history is %s", got)
	}
	// Commit stops retrying when the caller's context ends.
	proxy.on.Store(pause)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	third := Commit{ID: randomID(), Base: 2, Delete: []ObjectKey{objectKey("a")}}
	if _, err := s.Commit(ctx, &third); !errors.As(err, new(*UnknownError)) {
		t.Errorf("%v: want an UnknownError", err)
	}
	server.Resume()
	if r := commit(t, s, third); r != 3 {
		t.Errorf("the retried commit makes revision %d, want 3", r)
	}
}

// If nothing listens at the address, the error says that nothing was changed.
func TestCommitWithoutAServer(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	server.Kill()
	s := mustOpen(t, server.URL())
	_, err := s.Commit(short(t), &Commit{ID: randomID()})
	wantError(t, err, "nothing was changed", "cannot be reached", "start the server", s.Name())
	if errors.As(err, new(*UnknownError)) {
		t.Errorf("%v: want no UnknownError", err)
	}
	_, err = s.Changes(short(t), 0)
	wantError(t, err, "cannot be reached")
	_, err = s.History(short(t), "", 1)
	wantError(t, err, "cannot be reached")
	server.Restart()
	commit(t, s, Commit{Put: []Object{object("Model", "a", "1")}})
	server.Restart() // the pooled connection has died, which must not matter
	if r := commit(t, s, Commit{Put: []Object{object("Model", "a", "1")}}); r != 1 {
		t.Errorf("after the server restarted empty, the commit makes revision %d, want 1", r)
	}
}

func TestKilledServerLosesNoCommit(t *testing.T) {
	server := redistest.Start(t, redistest.Config{AppendOnly: true})
	s := mustOpen(t, server.URL())
	const commits, kills = 200, 3
	begun := make(chan int)
	go func() {
		defer close(begun)
		for i := range commits {
			begun <- i
			c := &Commit{ID: randomID(), Base: uint64(i), Put: []Object{object("Model", fmt.Sprintf("%03d", i), "1")}, Events: []Event{event("a", fmt.Sprint(i))}}
			for deadline := time.Now().Add(time.Minute); ; {
				revision, err := s.Commit(context.Background(), c)
				if err == nil && revision != uint64(i+1) {
					t.Errorf("commit %d makes revision %d", i+1, revision)
				}
				if err == nil {
					break
				}
				if errors.As(err, new(*StaleError)) || time.Now().After(deadline) {
					t.Errorf("commit %d: %v", i+1, err)
					return
				}
			}
		}
	}()
	for i := range begun {
		if i%(commits/kills) == commits/kills/2 {
			server.Kill() // while commit i is in flight
			server.Restart()
		}
	}
	c, events := changes(t, s, 0), history(t, s, "a", MaxEvents)
	if c.Revision != commits || len(c.Objects) != commits || len(events) != commits {
		t.Errorf("the store has revision %d, %d objects and %d events, want %d of each", c.Revision, len(c.Objects), len(events), commits)
	}
	for i, o := range c.Objects {
		if o.Revision != uint64(i+1) {
			t.Errorf("%s has revision %d, want %d", o.ObjectKey, o.Revision, i+1)
		}
	}
}

// A replica with an older state becomes the primary. A store that was ahead gets everything and learns that commits were lost, even after
// others have made as many new commits.
func TestOlderReplicaBecomesPrimary(t *testing.T) {
	server, replica := redistest.Start(t, redistest.Config{}), redistest.Start(t, redistest.Config{})
	client, replicaClient := raw(t, server), raw(t, replica)
	ahead, other := mustOpen(t, server.URL()), mustOpen(t, server.URL())
	base := commit(t, ahead, Commit{Put: []Object{object("Model", "a", "1"), object("Model", "b", "1")}})
	follow(t, replicaClient, server, headOf(t, client))
	base = commit(t, ahead, Commit{Base: base, Delete: []ObjectKey{objectKey("b")}})
	if err := replicaClient.ReplicaOf(short(t), "no", "one").Err(); err != nil {
		t.Fatal(err)
	}
	replicated := headOf(t, replicaClient)
	// The replica may have the last commit or not. From here on it gets no more.
	old := changes(t, mustOpen(t, replica.URL()), 0).Revision
	base = commit(t, ahead, Commit{Base: base, Put: []Object{object("Model", "c", "1")}})
	lost := changes(t, ahead, 0)
	wantChanges(t, other, 0, show(lost))

	// The server takes over the replica's state by being its replica for a moment.
	follow(t, client, replica, replicated)
	if err := client.ReplicaOf(short(t), "no", "one").Err(); err != nil {
		t.Fatal(err)
	}

	_, err := ahead.Commit(short(t), &Commit{ID: randomID(), Base: base})
	wantError(t, err, "has gone back", fmt.Sprintf("a different revision %d", old), "an older replica")
	want := changes(t, mustOpen(t, server.URL()), 0)
	if want.Revision != old {
		t.Fatalf("the revision is %d, want %d", want.Revision, old)
	}
	wantChanges(t, ahead, base, show(want))

	// The other store polls only after as many commits as it has seen, and notices that they are different ones.
	for next := old; next < base; {
		next = commit(t, ahead, Commit{Base: next, Put: []Object{object("Model", "new", fmt.Sprint(next))}})
	}
	_, err = other.Commit(short(t), &Commit{ID: randomID(), Base: base})
	wantError(t, err, "has gone back to a different revision")
	got := changes(t, other, base)
	if diff := cmp.Diff(changes(t, ahead, 0), got); diff != "" || !got.Complete || got.Revision != base {
		t.Errorf("the changes since revision %d are %s", base, show(got))
	}
	wantChanges(t, other, base, fmt.Sprint(base))
}

// follow makes a server the replica of another one and waits until it has the same state.
func follow(t *testing.T, client *redis.Client, primary *redistest.Server, head string) {
	t.Helper()
	host, port, err := net.SplitHostPort(primary.Addr())
	if err != nil {
		t.Fatal(err)
	}
	ctx := short(t)
	if err := client.ConfigSet(ctx, "repl-diskless-sync-delay", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if err := raw(t, primary).ConfigSet(ctx, "repl-diskless-sync-delay", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.ReplicaOf(ctx, host, port).Err(); err != nil {
		t.Fatal(err)
	}
	for {
		up := strings.Contains(client.Info(ctx, "replication").Val(), "master_link_status:up")
		if up && client.Get(ctx, objectsPrefix+"head").Val() == head {
			return
		}
		if ctx.Err() != nil {
			t.Fatal("the replica does not follow its primary")
		}
	}
}

// Changes and deletions between two pages appear in the result as if they had come before the first page.
func TestChangesBetweenPages(t *testing.T) {
	for _, c := range []struct {
		name   string
		since  uint64
		change func(t *testing.T, other *redisStore, base uint64)
		want   string
	}{
		{"the last object that was read", 0, func(t *testing.T, other *redisStore, base uint64) {
			commit(t, other, Commit{Base: base, Put: []Object{object("Model", "a", "2")}})
		}, "5 all Model/a@5=2 Model/b@1=1 Model/c@2=1 Model/d@3=1"},
		{"that one is deleted", 0, func(t *testing.T, other *redisStore, base uint64) {
			commit(t, other, Commit{Base: base, Delete: []ObjectKey{objectKey("a"), objectKey("d")}})
		}, "5 all Model/b@1=1 Model/c@2=1"},
		{"one is deleted and forgotten", 0, func(t *testing.T, other *redisStore, base uint64) {
			other.limits.tombstones = 0
			commit(t, other, Commit{Base: base, Delete: []ObjectKey{objectKey("a")}})
		}, "5 all Model/b@1=1 Model/c@2=1 Model/d@3=1"},
		{"news, of which one is deleted", 1, func(t *testing.T, other *redisStore, base uint64) {
			commit(t, other, Commit{Base: base, Delete: []ObjectKey{objectKey("c")}})
		}, "5 Model/c@5=deleted Model/d@3=1 Model/e@4=deleted"},
		{"news, of which one is deleted and forgotten", 1, func(t *testing.T, other *redisStore, base uint64) {
			other.limits.tombstones = 0
			commit(t, other, Commit{Base: base, Delete: []ObjectKey{objectKey("c")}})
		}, "5 all Model/a@1=1 Model/b@1=1 Model/d@3=1"},
		{"another store", 0, func(t *testing.T, other *redisStore, base uint64) {
			other.client.FlushDB(short(t))
			commit(t, other, Commit{Put: []Object{object("Model", "z", "1")}})
		}, "1 all Model/z@1=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := redistest.Start(t, redistest.Config{})
			proxy := startLossy(t, server.Addr(), mustListen(t))
			other := mustOpen(t, server.URL()).(*redisStore)
			commit(t, other, Commit{Put: []Object{object("Model", "a", "1"), object("Model", "b", "1"), object("Model", "e", "1")}})
			commit(t, other, Commit{Base: 1, Put: []Object{object("Model", "c", "1")}})
			commit(t, other, Commit{Base: 2, Put: []Object{object("Model", "d", "1")}})
			commit(t, other, Commit{Base: 3, Delete: []ObjectKey{objectKey("e")}})
			s := mustOpen(t, "redis://"+proxy.listener.Addr().String())
			limitsOf(s).page = 1
			proxy.on.Store(&trigger{"changes", func() { // the first page passes
				proxy.on.Store(&trigger{"changes", func() { c.change(t, other, 4) }})
			}})
			wantChanges(t, s, c.since, c.want)
			if proxy.on.Load() != nil {
				t.Error("there was only one page")
			}
		})
	}
}

// Each way in which a server can refuse writes is an error that says so and changes nothing. Afterwards commits work again.
func TestServersThatRefuseCommits(t *testing.T) {
	acl := func(rules ...any) func(ctx context.Context, c *redis.Client) error {
		return func(ctx context.Context, c *redis.Client) error {
			return c.Do(ctx, append([]any{"ACL", "SETUSER", "default"}, rules...)...).Err()
		}
	}
	type spoiled struct {
		name        string
		spoil, heal func(ctx context.Context, c *redis.Client) error
		want        string
	}
	cases := []spoiled{
		{"full", func(ctx context.Context, c *redis.Client) error { return c.ConfigSet(ctx, "maxmemory", "1").Err() },
			func(ctx context.Context, c *redis.Client) error { return c.ConfigSet(ctx, "maxmemory", "0").Err() }, "no memory left"},
		{"a replica", func(ctx context.Context, c *redis.Client) error { return c.ReplicaOf(ctx, "127.0.0.1", "1").Err() },
			func(ctx context.Context, c *redis.Client) error { return c.ReplicaOf(ctx, "no", "one").Err() }, "is a replica"},
	}
	for _, command := range []string{"set", "hset", "hdel", "zadd", "zrem", "zremrangebyrank"} {
		cases = append(cases, spoiled{"no permission for " + command, acl("-" + command), acl("+" + command), "may not do this"})
	}
	server := redistest.Start(t, redistest.Config{})
	s, client := mustOpen(t, server.URL()), raw(t, server)
	base := commit(t, s, Commit{Put: []Object{object("Model", "a", "1")}})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			before := show(changes(t, s, 0))
			if err := c.spoil(short(t), client); err != nil {
				t.Fatal(err)
			}
			next := Commit{ID: randomID(), Base: base, Put: []Object{object("Model", c.name, "1")}, Delete: []ObjectKey{objectKey("a")}, Events: []Event{event("a", "")}}
			_, err := s.Commit(short(t), &next)
			wantError(t, err, c.want, "nothing was changed", s.Name())
			// A commit that only deletes is all or nothing too.
			if c.name != "no permission for hset" { // which deletions do not need
				_, err = s.Commit(short(t), &Commit{ID: randomID(), Base: base, Delete: []ObjectKey{objectKey("a")}})
				wantError(t, err, c.want, "nothing was changed")
			}
			wantChanges(t, s, 0, before)
			if err := c.heal(short(t), client); err != nil {
				t.Fatal(err)
			}
			wantChanges(t, s, 0, before)
			base = commit(t, s, next)
		})
	}
}

// Keys that were overwritten, lost or evicted are an error that names the key, both for reads and for commits, which change nothing.
func TestTamperedObjectsInRedis(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	client := raw(t, server)
	key := func(name string) string { return objectsPrefix + name }
	for _, c := range []struct {
		name  string
		spoil func(ctx context.Context) redis.Cmder
		want  string
	}{
		{"evicted documents", func(ctx context.Context) redis.Cmder { return client.Del(ctx, key("data")) }, "data has 0 entries, and should have 2"},
		{"a lost document", func(ctx context.Context) redis.Cmder { return client.HDel(ctx, key("data"), "Model/a") }, "data has 1 entries"},
		{"evicted revisions", func(ctx context.Context) redis.Cmder { return client.Del(ctx, key("changed")) }, "changed has 0 entries, and should have 3"},
		{"evicted deletions", func(ctx context.Context) redis.Cmder { return client.Del(ctx, key("deleted")) }, "changed has 3 entries, and should have 2"},
		{"an evicted head", func(ctx context.Context) redis.Cmder { return client.Del(ctx, key("head")) }, "and should have 0"},
		{"an evicted format", func(ctx context.Context) redis.Cmder { return client.Del(ctx, key("format")) }, "format is missing"},
		{"evicted events", func(ctx context.Context) redis.Cmder { return client.Del(ctx, key("events")) }, "events has 0 entries"},
		{"an evicted index", func(ctx context.Context) redis.Cmder { return client.Del(ctx, key("subjects")) }, "subjects has 0 entries"},
		{"a strange head", func(ctx context.Context) redis.Cmder { return client.Set(ctx, key("head"), "2 x", 0) }, "head is not what"},
		{"a head that has counted far", func(ctx context.Context) redis.Cmder {
			return client.Set(ctx, key("head"), "9007199254740993 00 2 0 1 1 1", 0)
		}, "counted too far"},
		{"a head of another kind", func(ctx context.Context) redis.Cmder { return client.LPush(ctx, key("head"), "1") }, "head is a list"},
		{"documents of another kind", func(ctx context.Context) redis.Cmder { return client.Set(ctx, key("data"), "1", 0) }, "data is a string"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := short(t)
			client.FlushDB(ctx)
			s := mustOpen(t, server.URL())
			commit(t, s, Commit{Put: []Object{object("Model", "a", "1"), object("Model", "b", "1"), object("Model", "c", "1")}, Events: []Event{event("a", "x")}})
			commit(t, s, Commit{Base: 1, Delete: []ObjectKey{objectKey("c")}})
			if strings.Contains(c.name, "another kind") {
				client.Del(ctx, key("head"), key("data"))
			}
			if err := c.spoil(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			_, commitErr := s.Commit(ctx, &Commit{ID: randomID(), Base: 2, Put: []Object{object("Model", "a", "2")}})
			_, changesErr := s.Changes(ctx, 0)
			_, historyErr := s.History(ctx, "a", 5)
			for _, err := range []error{commitErr, changesErr, historyErr} {
				wantError(t, err, c.want, "is damaged", "noeviction", s.Name())
			}
		})
	}
}

// The same for single entries, which only a read of the entry notices.
func TestTamperedEntriesInRedis(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	client := raw(t, server)
	for _, c := range []struct {
		name, want string
		spoil      func(ctx context.Context) redis.Cmder
	}{
		{"an object of no kind", "letters and digits", func(ctx context.Context) redis.Cmder {
			client.HSet(ctx, objectsPrefix+"data", "no slash", "1")
			client.HDel(ctx, objectsPrefix+"data", "Model/a")
			client.ZAdd(ctx, objectsPrefix+"changed", redis.Z{Score: 1, Member: "no slash"})
			return client.ZRem(ctx, objectsPrefix+"changed", "Model/a")
		}},
		{"a revision to come", `"Model" "a" has revision "7"`, func(ctx context.Context) redis.Cmder {
			return client.ZAdd(ctx, objectsPrefix+"changed", redis.Z{Score: 7, Member: "Model/a"})
		}},
		{"a document without content", "has 0 bytes", func(ctx context.Context) redis.Cmder { return client.HSet(ctx, objectsPrefix+"data", "Model/a", "") }},
		{"a long document", "has 1048577 bytes", func(ctx context.Context) redis.Cmder {
			return client.HSet(ctx, objectsPrefix+"data", "Model/a", strings.Repeat("x", MaxObjectBytes+1))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := short(t)
			client.FlushDB(ctx)
			s := mustOpen(t, server.URL())
			commit(t, s, Commit{Put: []Object{object("Model", "a", "1")}})
			if err := c.spoil(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			_, err := s.Changes(ctx, 0)
			wantError(t, err, strings.ReplaceAll(c.want, `"Model" "a"`, `Model "a"`), "is damaged", s.Name())
		})
	}
	for text, want := range map[string]string{
		"": "not what this program writes", "1 2 a": "not what", "1 2 a b\nx": "not what", "x 2 a\nx": `revision is "x"`, "1 x a\nx": `time is "x"`,
		"1 2 \nx": "subject", "1 2 a%4\nx": "subject", "1 2 a%41\nx": "subject", "-1 2 a\nx": "revision", "1 9223372036854775808 a\n": "time",
		"1 2 b\nx": `its subject is "b"`, "1 2 a\n" + strings.Repeat("x", MaxObjectBytes+1): "not what",
	} {
		ctx := short(t)
		client.FlushDB(ctx)
		s := mustOpen(t, server.URL())
		commit(t, s, Commit{Events: []Event{event("a", "1")}})
		client.HSet(ctx, objectsPrefix+"events", "1", text)
		_, err := s.History(ctx, "a", 5)
		wantError(t, err, want, "event 1", "is damaged")
	}
}

// Answers that make no sense are an error and return no objects.
func TestNonsenseChanges(t *testing.T) {
	s := openRedis(&redis.Options{Addr: "127.0.0.1:1"}, "redis://nowhere")
	defer s.Close()
	good := func() []any {
		return []any{"2", "0a", "1", "0", "0", "2", "Model/b", "Model/a", "1", "x", "Model/b", "2", nil}
	}
	page, err := s.parseChanges(good())
	if err != nil || len(page.objects) != 2 || page.objects[1].Data != nil || page.head != (mark{2, "0a"}) || !page.complete || page.more {
		t.Fatalf("%+v, %v", page, err)
	}
	for i, values := range map[int][]any{0: {nil, "x", "-1", "1e3", int64(2)}, 1: {nil}, 2: {nil}, 6: {int64(1)}, 7: {nil, "", "a", "/a", "Model/"}, 8: {nil, "0", "3", "x"}, 9: {"", int64(1)}} {
		for _, value := range values {
			answer := good()
			answer[i] = value
			if page, err := s.parseChanges(answer); err == nil {
				t.Errorf("%v parses as %+v", answer, page)
			}
		}
	}
	for _, n := range []int{0, 6, 8, 9, 12} {
		if page, err := s.parseChanges(good()[:n]); err == nil {
			t.Errorf("%d values parse as %+v", n, page)
		}
	}
}
