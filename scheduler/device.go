package scheduler

// TenantID names one model version at a [Device].
type TenantID int32

// Device shares something that one model version should use at a time, such as an accelerator, between several. It is a
// deficit round robin in time (Shreedhar and Varghese, 1995): at each visit a tenant gets its turn's length of credit and
// holds the device while it has any; a batch that takes longer than the credit leaves a debt, which later turns pay. A
// tenant that wants nothing is not visited, so the device never idles while anybody wants it.
//
// With turns of 6 and 4 ms and batches of 5 ms on both sides: A has one batch, for a second one is not expected to fit, and
// keeps 1 ms; B has one and owes 1 ms; A has one and keeps 2 ms; B, with 3 ms, has one and owes 2 ms … until A has two in a
// row; in the long run 6 to 4.
//
// Like a Machine it owns no clock, no lock and no goroutine.
type Device struct {
	tenants []tenant
	held    bool
	holder  TenantID
	cursor  int // who is looked at first for the next turn
}

type tenant struct {
	attached, wants bool
	turnNanos       int64
	creditNanos     int64
}

const (
	// DefaultTurnNanos is a tenant's turn while no plan says otherwise: half of an epoch.
	DefaultTurnNanos = int64(5e6)
	// maxDebtTurns bounds what one endless batch, or a hung replica, costs its model afterwards.
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

// Detach removes a tenant; its turn, if it has one, is over. Call Next after it.
func (d *Device) Detach(id TenantID) {
	if t := d.tenant(id); t != nil {
		*t = tenant{}
		if d.held && d.holder == id {
			d.held = false
		}
	}
}

// SetTurn sets the length of a tenant's turns; 0 and less mean DefaultTurnNanos.
func (d *Device) SetTurn(id TenantID, nanos int64) {
	if t := d.tenant(id); t != nil {
		if nanos <= 0 {
			nanos = DefaultTurnNanos
		}
		t.turnNanos = nanos
	}
}

// Want asks for a turn. Call Next after it.
func (d *Device) Want(id TenantID) {
	if t := d.tenant(id); t != nil {
		t.wants = true
	}
}

// End gives back a turn that was nanos long; again says that the tenant wants another one, as a Want at any time during
// the turn does. Call Next after it.
func (d *Device) End(id TenantID, nanos int64, again bool) {
	t := d.tenant(id)
	if t == nil || !d.held || d.holder != id {
		return
	}
	d.held = false
	d.cursor = (int(id) + 1) % len(d.tenants)
	t.wants = t.wants || again
	saves := int64(0) // who wants nothing saves nothing up
	if t.wants {
		saves = t.turnNanos
	}
	t.creditNanos = min(max(t.creditNanos-max(nanos, 0), -maxDebtTurns*t.turnNanos), saves)
}

// Next says whose turn begins now, and how long it is; ok is false when the device is held or nobody wants it.
func (d *Device) Next() (id TenantID, nanos int64, ok bool) {
	if d.held {
		return 0, 0, false
	}
	// The first in the ring of those who need the fewest visits until they have credit.
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
			rounds-- // those behind it are not visited in the last round
		}
	}
	t := &d.tenants[winner]
	t.wants = false
	d.held, d.holder = true, TenantID(winner)
	return d.holder, t.creditNanos, true
}

// visits is how many times a turn's length must be added until there is credit.
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
