package redistest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// dumpTimeout bounds Dump and Restore, which take milliseconds.
const dumpTimeout = time.Minute

// Dump returns the content of database 0 as commands that recreate it, one a line, in the syntax of redis-cli. Keys and fields are sorted, so dumps
// of the same data are equal. A key that expires, or is neither a string, a hash nor a sorted set, fails the test.
func (s *Server) Dump() string {
	s.t.Helper()
	client, ctx := s.client()
	keys, err := client.Keys(ctx, "*").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	slices.Sort(keys)
	var lines strings.Builder
	for _, key := range keys {
		words, err := dumpKey(ctx, client, key)
		if err != nil {
			s.t.Fatalf("the key %q cannot be dumped: %v", key, err)
		}
		for i, word := range words {
			if i == 0 {
				lines.WriteString(word)
			} else {
				lines.WriteByte(' ')
				quote(&lines, word)
			}
		}
		lines.WriteByte('\n')
	}
	return lines.String()
}

func dumpKey(ctx context.Context, client *redis.Client, key string) ([]string, error) {
	kind, err := client.Type(ctx, key).Result()
	if err != nil {
		return nil, err
	}
	if expiry, err := client.TTL(ctx, key).Result(); err != nil || expiry != -1 {
		return nil, fmt.Errorf("it expires in %v (%w)", expiry, err)
	}
	switch kind {
	case "string":
		value, err := client.Get(ctx, key).Result()
		return []string{"SET", key, value}, err
	case "hash":
		fields, err := client.HGetAll(ctx, key).Result()
		words := []string{"HSET", key}
		for _, name := range sortedKeys(fields) {
			words = append(words, name, fields[name])
		}
		return words, err
	case "zset":
		members, err := client.ZRangeWithScores(ctx, key, 0, -1).Result()
		words := []string{"ZADD", key}
		for _, m := range members {
			words = append(words, strconv.FormatFloat(m.Score, 'g', -1, 64), fmt.Sprint(m.Member))
		}
		return words, err
	}
	return nil, fmt.Errorf("its type is %s: expected string, hash or zset", kind)
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// quote writes a word in the syntax of redis-cli: in double quotes, with \xHH for everything but printable ASCII.
func quote(b *strings.Builder, word string) {
	b.WriteByte('"')
	for i := range len(word) {
		switch c := word[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
}

// Restore runs the commands of a dump.
func (s *Server) Restore(dump string) {
	s.t.Helper()
	client, ctx := s.client()
	for line := range strings.Lines(dump) {
		words, err := split(strings.TrimSuffix(line, "\n"))
		if err == nil {
			err = client.Do(ctx, words...).Err()
		}
		if err != nil {
			s.t.Fatalf("the command %.200s: %v", line, err)
		}
	}
}

// split parses a line of a dump into the words of the command.
func split(line string) ([]any, error) {
	name, rest, _ := strings.Cut(line, " ")
	words := []any{name}
	for rest != "" {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return nil, fmt.Errorf("no quoted word begins at %.40q: %w", rest, err)
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, err
		}
		words, rest = append(words, word), strings.TrimPrefix(rest[len(quoted):], " ")
	}
	return words, nil
}

func (s *Server) client() (*redis.Client, context.Context) {
	s.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: s.config.Password, Protocol: 2, DisableIdentity: true})
	ctx, cancel := context.WithTimeout(context.Background(), dumpTimeout)
	s.t.Cleanup(func() {
		cancel()
		_ = client.Close()
	})
	return client, ctx
}
