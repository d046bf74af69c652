package state

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed values.lua
var valuesSource string

var valuesScript = redis.NewScript(valuesSource)

// redisValueKey is the key of a value. No state has an empty policy, so it is not the key of a state, and Forget finds both.
func redisValueKey(k Key) string { return functionPrefix(k.Function) + ":" + escape(k.Policy) }

// value runs values.lua for a key, and returns what follows the 'ok' in its answer.
func (r *redisStore) value(ctx context.Context, k Key, op string, args ...any) (rest []string, err error) {
	err = r.inFormat(ctx, func() error {
		keys := []string{redisValueKey(k), redisFormatKey, objectsFormatKey}
		all := append([]any{r.format(), MaxValueBytes, writersRemembered, writerMemorySeconds, r.writer, op}, args...)
		answer, err := valuesScript.Run(ctx, r.client, keys, all...).Slice()
		if err != nil {
			return r.explain(err)
		}
		texts := make([]string, len(answer))
		for i := range answer {
			text, ok := answer[i].(string)
			if !ok {
				return r.unreadable()
			}
			texts[i] = text
		}
		if len(texts) < 2 {
			return r.unreadable()
		}
		switch detail := texts[1]; texts[0] {
		case "ok":
			rest = texts[1:]
			return nil
		case "format":
			return r.wrongFormat(detail)
		case "kind":
			return refuse(k, fmt.Sprintf("its key is a %s, not a hash: another program uses the same names; delete the key, or use another database", detail))
		case "long":
			return refuse(k, fmt.Sprintf("its %s is longer than %d bytes: delete the function's learned state", detail, MaxValueBytes))
		case "number":
			return refuse(k, fmt.Sprintf("its field %q is not what this program writes: delete the function's learned state", detail))
		}
		return r.unreadable()
	})
	return rest, err
}

func (r *redisStore) LeaseValue(ctx context.Context, key Key, lasts time.Duration) (fence uint64, err error) {
	if err := key.checkValue(); err != nil {
		return 0, refuse(key, err.Error())
	}
	answer, err := r.value(ctx, key, "lease", max(lasts.Milliseconds(), 0))
	if err != nil {
		return 0, err
	}
	if fence, err = strconv.ParseUint(answer[0], 10, 64); err != nil {
		return 0, r.unreadable()
	}
	return fence, nil
}

func (r *redisStore) LoadValue(ctx context.Context, key Key, since uint64) (Value, error) {
	if err := key.checkValue(); err != nil {
		return Value{}, refuse(key, err.Error())
	}
	answer, err := r.value(ctx, key, "load", strconv.FormatUint(since, 10))
	if err != nil {
		return Value{}, err
	}
	return r.parseValue(answer)
}

// parseValue parses a revision and perhaps data.
func (r *redisStore) parseValue(answer []string) (v Value, err error) {
	if v.Revision, err = strconv.ParseUint(answer[0], 10, 64); err != nil || len(answer) > 2 {
		return Value{}, r.unreadable()
	}
	if len(answer) == 2 {
		v.Data = []byte(answer[1])
	}
	return v, nil
}

func (r *redisStore) SaveValue(ctx context.Context, s *Save) (saved Saved, err error) {
	if err := s.check(); err != nil {
		return saved, refuse(s.Key, err.Error())
	}
	answer, err := r.value(ctx, s.Key, "save", strconv.FormatUint(s.Base, 10), strconv.FormatUint(s.Fence, 10), fmt.Sprintf("%020d", s.Seq), s.Data)
	if err != nil {
		return saved, err
	}
	if len(answer) < 2 {
		return saved, r.unreadable()
	}
	if saved.Value, err = r.parseValue(answer[1:]); err != nil {
		return Saved{}, err
	}
	switch answer[0] {
	case "applied":
		saved.Applied = true
	case "fenced":
		saved.Fenced = true
	case "stale":
	default:
		return Saved{}, r.unreadable()
	}
	return saved, nil
}
