// Package capacity decides how many replicas each model version has.
//
// While a version loads, the number is what its life cycle asks for ([Member.Load]). While it serves, package autoscale computes
// what its queries need, every 250 ms and at once when a query found no replica ([Member.Wake]). Package placement divides the
// node among all versions where not everything fits. The result is carried out in two passes: first the versions that lose
// replicas, then the versions that gain some, as far as replicas that are still ending leave room.
//
// # The parts
//
// A [Member] is one version as this package sees it: its queue, its supervised replicas, its face on the query path, and the
// measurements that outlive its replicas. A seat exists for a member only while it has replicas or wants some, so a version
// that sleeps costs nothing per tick. sample.go turns a lane's counters into the autoscaler's input, place.go applies the
// placement, usage.go measures what replicas use, budget.go knows what the node has, coldstart.go measures how long queries
// waited for a version to wake.
//
// # Locks
//
// A Capacity has one lock. Its own goroutine never holds that lock together with any other of the gateway's locks, so callers
// may call it with theirs held. [Member.Wake] takes only a small lock of its own and never blocks: it is called on the query
// path.
//
// # What it never does
//
// It starts and ends no process: it sets the count of a containers.Set, which does. It decides nothing about versions: which
// of them is loaded and which serves is decided by package versions. It counts one node.
package capacity
