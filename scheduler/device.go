package scheduler

// TenantID names one model version at a [Device].
type TenantID int32

// Device shares a resource that one model version should use at a time, such as an accelerator. It is a deficit round
// robin in time (Shreedhar and Varghese, 1995): at each visit a tenant's credit grows by the length of its turn, and it
// holds the device while it has credit. A batch that takes longer than the credit leaves a debt, which later turns pay.
// A tenant that does not want the device is not visited, so the device never idles while any tenant wants it.
//
// Example: turns of 6 and 4 ms, batches of 5 ms on both sides. A has one batch, because a second one is not expected to
// fit, and keeps 1 ms; B has one and owes 1 ms; A has one and keeps 2 ms; B, with 3 ms, has one and owes 2 ms … until A
// has two in a row. In the long run the ratio is 6 to 4.
//
// Like a Machine it owns no clock, no lock and no goroutine.
type Device struct {
	tenants []tenant
	held    bool
	holder  TenantID
	cursor  int // the tenant that is considered first for the next turn
}

type tenant struct {
	attached, wants bool
	turnNanos       int64
	creditNanos     int64
}

const (
	// DefaultTurnNanos is a tenant's turn unless a plan sets one: half of an epoch.
	DefaultTurnNanos = int64(5e6) //xebec:limit a turn on a shared device, unless the plan sets another
	// maxDebtTurns bounds what one endless batch, or a hung replica, costs its model version afterwards.
	maxDebtTurns = 16
)

// Attach adds a tenant.
func (d *Device) Attach() TenantID {
	fresh := tenant{attached: true, turnNanos: DefaultTurnNanos}
	for i := range d.tenants {
		if !d.tenants[i].attached {
			d.tenants[i] = fresh
			return TenantID(i)
		}
	}
	d.tenants = append(d.tenants, fresh)
	return TenantID(len(d.tenants) - 1)
}

// Detach removes a tenant and ends its turn, if it has one. Call Next afterwards.
func (d *Device) Detach(id TenantID) {
	if t := d.tenant(id); t != nil {
		*t = tenant{}
		if d.held && d.holder == id {
			d.held = false
		}
	}
}

// SetTurn sets the length of a tenant's turns; 0 or less means DefaultTurnNanos.
func (d *Device) SetTurn(id TenantID, nanos int64) {
	if t := d.tenant(id); t != nil {
		if nanos <= 0 {
			nanos = DefaultTurnNanos
		}
		t.turnNanos = nanos
	}
}

// Want asks for a turn. Call Next afterwards.
func (d *Device) Want(id TenantID) {
	if t := d.tenant(id); t != nil {
		t.wants = true
	}
}

// End returns a turn that was nanos long. again means that the tenant wants another one, like a Want at any time during
// the turn. Call Next afterwards.
func (d *Device) End(id TenantID, nanos int64, again bool) {
	t := d.tenant(id)
	if t == nil || !d.held || d.holder != id {
		return
	}
	d.held = false
	d.cursor = (int(id) + 1) % len(d.tenants)
	t.wants = t.wants || again
	saves := int64(0) // a tenant that does not want the device saves no credit
	if t.wants {
		saves = t.turnNanos
	}
	t.creditNanos = min(max(t.creditNanos-max(nanos, 0), -maxDebtTurns*t.turnNanos), saves)
}

// Next starts the next turn and returns its tenant and length; ok is false when the device is held or no tenant wants
// it.
func (d *Device) Next() (id TenantID, nanos int64, ok bool) {
	if d.held {
		return 0, 0, false
	}
	// The winner is the first in the ring of those that need the fewest visits until they have credit.
	winner, rounds := -1, int64(0)
	for n := range d.tenants {
		i := (d.cursor + n) % len(d.tenants)
		if t := &d.tenants[i]; t.wants && (winner < 0 || t.visits() < rounds) {
			winner, rounds = i, t.visits()
		}
	}
	if winner < 0 {
		return 0, 0, false
	}
	for n := range d.tenants {
		i := (d.cursor + n) % len(d.tenants)
		if t := &d.tenants[i]; t.wants {
			t.creditNanos += rounds * t.turnNanos
		}
		if i == winner {
			rounds-- // tenants behind the winner are not visited in the last round
		}
	}
	t := &d.tenants[winner]
	t.wants = false
	d.held, d.holder = true, TenantID(winner)
	return d.holder, t.creditNanos, true
}

// visits is how many turn lengths must be added until there is credit.
func (t *tenant) visits() int64 {
	if t.creditNanos >= 0 {
		return 1
	}
	return -t.creditNanos/t.turnNanos + 1
}

func (d *Device) tenant(id TenantID) *tenant {
	if id < 0 || int(id) >= len(d.tenants) || !d.tenants[id].attached {
		return nil
	}
	return &d.tenants[id]
}
