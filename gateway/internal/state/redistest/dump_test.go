package redistest

import (
	"fmt"
	"strings"
	"testing"
)

// Restoring a dump gives the same data, byte by byte.
func TestRestoredDumpIsTheSame(t *testing.T) {
	var every strings.Builder
	for c := range 256 {
		every.WriteByte(byte(c))
	}
	one, two := Start(t, Config{}), Start(t, Config{Password: "pass"})
	client, ctx := one.client()
	for _, command := range [][]any{
		{"SET", "text", every.String()},
		{"SET", "", ""},
		{"HSET", "hash\r\n \"" + every.String(), every.String(), "1", "b", "", "", "c"},
		{"ZADD", "set", "1.5", "b", "-3", every.String(), "1e300", "c", "9007199254740991", "d"},
	} {
		if err := client.Do(ctx, command...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	dump := one.Dump()
	two.Restore(dump)
	if again := two.Dump(); again != dump || strings.Count(dump, "\n") != 4 {
		t.Errorf("after Restore the dump\n%s\nis\n%s", dump, again)
	}
	other, ctx := two.client()
	for key, kind := range map[string]string{"text": "string", "": "string", "set": "zset"} {
		if one, two := client.Dump(ctx, key).Val(), other.Dump(ctx, key).Val(); one != two || one == "" {
			t.Errorf("the %s %q is %q, restored %q", kind, key, one, two)
		}
	}
	if got, want := fmt.Sprint(other.HGetAll(ctx, "hash\r\n \""+every.String()).Val()), fmt.Sprint(client.HGetAll(ctx, "hash\r\n \""+every.String()).Val()); got != want {
		t.Errorf("the hash is %s, restored %s", want, got)
	}
}
