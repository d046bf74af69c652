package driver

import (
	"sync"

	"github.com/xebec-serving/xebec/scheduler"
)

// Device grants turns to the lanes that share a device: see [scheduler.Device].
type Device struct {
	mu     sync.Mutex
	device scheduler.Device
	lanes  map[scheduler.TenantID]*Lane
}

// NewDevice makes a device without lanes.
func NewDevice() *Device { return &Device{lanes: make(map[scheduler.TenantID]*Lane)} }

// attach makes the lane a tenant.
func (d *Device) attach(l *Lane) scheduler.TenantID {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := d.device.Attach()
	d.lanes[id] = l
	return id
}

// detach ends the tenancy, and the turn if the tenant has it.
func (d *Device) detach(l *Lane) {
	d.mu.Lock()
	d.device.Detach(l.tenant)
	delete(d.lanes, l.tenant)
	d.grantNext()
}

// report passes on the turn requests of a lane's machine. A lane that has left is ignored.
func (d *Device) report(l *Lane, endNanos int64, want bool) {
	d.mu.Lock()
	id := l.tenant
	if d.lanes[id] != l {
		d.mu.Unlock()
		return
	}
	if endNanos > 0 {
		d.device.End(id, endNanos, want)
	}
	if want {
		d.device.Want(id)
	}
	d.grantNext()
}

func (d *Device) setTurn(l *Lane, nanos int64) {
	d.mu.Lock()
	if d.lanes[l.tenant] == l {
		d.device.SetTurn(l.tenant, nanos)
	}
	d.mu.Unlock()
}

// grantNext gives the device to the lane whose turn it is. It is entered with the lock held and returns without it,
// because the lane may report at once.
func (d *Device) grantNext() {
	id, nanos, ok := d.device.Next()
	l := d.lanes[id]
	d.mu.Unlock()
	if ok {
		l.turn.Store(nanos)
		l.work()
	}
}
