package state

import (
	"context"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Objects in Redis. objects.lua has the layout.

const (
	objectsPrefix = "xebec:objects:"

	// A page of changes or of the history is small enough that other clients do not notice the work.
	redisPage      = 1000
	redisPageBytes = 2 << 20
	// changesPages is more than a full store has. A reader of so many pages is reading a store that changes faster than it can be read.
	changesPages = 4096

	// A commit whose answer is lost is retried for commitPatience, with pauses that double from the first to the last.
	commitPatience   = 3 * time.Second
	commitFirstPause = 20 * time.Millisecond
	commitLastPause  = 500 * time.Millisecond
	// commitBytesPerSecond is the slowest network that a large commit allows for. The time is added to the timeout of each attempt and to
	// commitPatience.
	commitBytesPerSecond = 16 << 20
)

//go:embed objects.lua
var objectsSource string

// objectKeys are the script's KEYS. Objects and subjects are entries in these, never keys of their own.
var objectKeys = func() []string {
	names := []string{"format", "head", "data", "changed", "deleted", "commits", "events", "subjects"}
	for i := range names {
		names[i] = objectsPrefix + names[i]
	}
	return append(names, redisFormatKey)
}()

// A settledError is an answer of the script: it has looked at the store and changed nothing.
type settledError struct{ error }

func (e settledError) Unwrap() error { return e.error }

// objects runs objects.lua and returns what follows the 'ok' in its answer. Errors are explained. An error that the script answered is a
// settledError.
func (r *redisStore) objects(ctx context.Context, client redis.Scripter, what string, args ...any) (answer []any, err error) {
	// If the database has another format, the script has changed nothing, so an error of the conversion is settled too.
	settled := false
	err = r.inFormat(ctx, func() error {
		answer, err = r.objectsOnce(ctx, client, what, args)
		settled = errors.As(err, new(settledError))
		return err
	})
	if err != nil && settled && !errors.As(err, new(settledError)) {
		err = settledError{err}
	}
	return answer, err
}

func (r *redisStore) objectsOnce(ctx context.Context, client redis.Scripter, what string, args []any) ([]any, error) {
	all := append(make([]any, 0, 2+len(args)), r.format(), what)
	answer, err := client.Eval(ctx, objectsSource, objectKeys, append(all, args...)...).Result()
	if err != nil {
		return nil, r.explain(err)
	}
	list, _ := answer.([]any)
	if len(list) == 0 {
		return nil, r.unreadable()
	}
	status, _ := list[0].(string)
	detail := ""
	if len(list) > 1 {
		detail, _ = list[1].(string)
	}
	switch status {
	case "ok":
		return list[1:], nil
	case "again":
		return nil, settledError{errAgain}
	case "format":
		return nil, settledError{r.wrongFormat(detail)}
	case "damaged":
		return nil, settledError{r.damaged(detail)}
	case "stale":
		revision, err := parseRevision(detail)
		if err != nil {
			return nil, r.unreadable()
		}
		return nil, settledError{&StaleError{Revision: revision}}
	case "many":
		n, err := strconv.Atoi(detail)
		if err != nil {
			return nil, r.unreadable()
		}
		return nil, settledError{fmt.Errorf("%s: %w", r.name, tooManyObjects(n, r.limits.objects))}
	}
	return nil, r.unreadable()
}

func (r *redisStore) unreadable() error {
	return fmt.Errorf("%s: the script's answer cannot be read: is there a proxy, or a server that is not Redis, in between?", r.name)
}

func (r *redisStore) damaged(what string) error {
	return fmt.Errorf("%s: the store of declared objects is damaged (%.300s): did another program write there, or did the server evict keys (maxmemory-policy should be noeviction)? "+
		"Restore it from a copy; or delete the keys %s* and apply everything again", r.name, what, objectsPrefix)
}

func parseRevision(text string) (uint64, error) { return strconv.ParseUint(text, 10, 53) }

// commitArgs returns the script's arguments for a commit and their approximate size in bytes.
func (r *redisStore) commitArgs(c *Commit) ([]any, int) {
	args := make([]any, 0, 11+2*len(c.Put)+len(c.Delete)+2*len(c.Events))
	args = append(args, hex.EncodeToString(c.ID[:]), c.Base, r.known.id(c.Base), r.limits.objects, r.limits.events, r.limits.historyBytes,
		r.limits.tombstones, r.limits.commits, len(c.Put), len(c.Delete), len(c.Events))
	size := 0
	for i := range c.Put {
		field := objectField(c.Put[i].ObjectKey)
		args = append(args, field, c.Put[i].Data)
		size += len(field) + len(c.Put[i].Data)
	}
	for _, k := range c.Delete {
		args = append(args, objectField(k))
		size += len(k.Name)
	}
	for i := range c.Events {
		e := &c.Events[i]
		subject := escape(e.Subject)
		event := append(fmt.Appendf(nil, "%d %d %s\n", c.Base+1, e.At.UnixNano(), subject), e.Data...)
		args = append(args, subject, event)
		size += len(subject) + len(event)
	}
	return args, size
}

// objectField is the field of an object in the hash. Kinds have no slash.
func objectField(k ObjectKey) string { return k.Kind + "/" + k.Name }

func (r *redisStore) Commit(ctx context.Context, c *Commit) (uint64, error) {
	if err := c.check(); err != nil {
		return 0, fmt.Errorf("%s: nothing was changed: %w", r.name, err)
	}
	args, size := r.commitArgs(c)
	extra := time.Duration(size) * time.Second / commitBytesPerSecond
	client := r.client.WithTimeout(redisTimeout + extra)
	unknown := false // an attempt was sent and its answer lost
	pause, deadline := commitFirstPause, time.Now().Add(commitPatience+extra)
	for {
		revision, sent, err := r.attempt(ctx, client, args)
		if err == nil {
			r.known.note(mark{revision, hex.EncodeToString(c.ID[:])})
			return revision, nil
		}
		unknown = unknown || sent
		var settled settledError
		if errors.As(err, &settled) {
			var stale *StaleError
			if errors.As(err, &stale) {
				return 0, fmt.Errorf("%s: nothing was changed: %w", r.name, &StaleError{c.Base, stale.Revision})
			}
			return 0, fmt.Errorf("nothing was changed: %w", settled.error)
		}
		if !unknown && !isBroken(err) {
			return 0, fmt.Errorf("nothing was changed: %w", err)
		}
		if !time.Now().Add(pause).Before(deadline) || errors.Is(err, redis.ErrClosed) || !wait(ctx, pause) {
			if unknown {
				return 0, &UnknownError{err}
			}
			return 0, fmt.Errorf("nothing was changed: %w", err)
		}
		pause = min(2*pause, commitLastPause)
	}
}

// attempt sends a commit once. After an error, sent says that the commit may have been made: it was sent, and neither the script nor the
// server answered.
func (r *redisStore) attempt(ctx context.Context, client *redis.Client, args []any) (revision uint64, sent bool, err error) {
	conn := client.Conn()
	defer func() { _ = conn.Close() }()
	// This fails before the commit is sent if nothing listens at the address, the password is wrong or the pooled connection has died.
	if err := conn.Ping(ctx).Err(); err != nil {
		return 0, false, r.explain(err)
	}
	answer, err := r.objects(ctx, conn, "commit", args...)
	if err != nil {
		var settled settledError
		var answered redis.Error
		return 0, !errors.As(err, &settled) && !errors.As(err, &answered), err
	}
	text, _ := answer[0].(string)
	revision, err = parseRevision(text)
	if err != nil {
		return 0, true, r.unreadable()
	}
	return revision, false, nil
}

// isBroken reports whether an established connection was closed. After a restart of the server the pool has such connections.
func isBroken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// wait waits for the pause. It returns false if the context ends first.
func wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
