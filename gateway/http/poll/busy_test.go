package poll

import (
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// A socket that always has more to read delays no alarm, no wish of another goroutine and no end of the group.
func TestABusySocketDelaysNoOther(t *testing.T) {
	g := group(t, 1)
	busy := make(chan struct{}, 1)
	_, sender := pair(t, g, func(o *owner, in []byte) {
		o.Keep(in) // so there is more, without end
		select {
		case busy <- struct{}{}:
		default:
		}
	})
	inputs := make(chan string, 1)
	other, peer := pair(t, g, func(o *owner, in []byte) {
		o.Hold()
		inputs <- string(in)
	})
	write(t, peer, "a")
	<-inputs
	write(t, sender, "more")
	<-busy
	<-busy // the poller is between rounds that have no end

	other.Alarm(g.now() + api.Nanos(5*time.Millisecond))
	other.wants(t, "expired")
	other.Wake()
	other.wants(t, "expired")
	write(t, peer, "b")
	other.Free()
	select {
	case got := <-inputs:
		if got != "b" {
			t.Errorf("%q, want b", got)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("a socket that is free again is not read")
	}
	closed := make(chan struct{})
	go func() { g.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Fatal("the group does not close")
	}
}
