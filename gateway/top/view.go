package top

import (
	"cmp"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/gateway/internal/terminal"
)

type (
	tab   int
	order int
)

const (
	tabFunctions tab = iota
	tabModels
	tabs
)

const (
	byQueries order = iota
	byP99
	byName
	orders
)

func (o order) String() string {
	return [...]string{"queries/s", "p99", "name"}[o]
}

// maxFilterRunes is longer than any name.
const maxFilterRunes = 128

// view is what the user has selected to see.
type view struct {
	tab   tab
	order order
	// filter is the part of a name that rows must contain. editing is true while it is being typed.
	filter  string
	editing bool
	// offset is the number of rows that are scrolled off the top.
	offset int
	colour bool
	// problem says why the figures are stale; it is empty if they are not.
	problem string
}

// press applies a key. There are rows rows, of which page fit on the screen. quit reports that the user wants to leave.
func (v view) press(k terminal.Key, rows, page int) (next view, quit bool) {
	last := max(0, rows-page)
	v.offset = min(v.offset, last)
	switch k {
	case terminal.KeyInterrupt:
		return v, true
	case terminal.KeyUp:
		v.offset--
	case terminal.KeyDown:
		v.offset++
	case terminal.KeyPageUp:
		v.offset -= max(1, page-1) // the last line of a page may be the count of the rows below it
	case terminal.KeyPageDown:
		v.offset += max(1, page-1)
	case terminal.KeyHome:
		v.offset = 0
	case terminal.KeyEnd:
		v.offset = last
	case terminal.KeyTab:
		v.tab, v.offset = (v.tab+1)%tabs, 0
	case terminal.KeyEscape:
		v.filter, v.editing, v.offset = "", false, 0
	case terminal.KeyEnter:
		v.editing = false
	case terminal.KeyBackspace:
		if r := []rune(v.filter); v.editing && len(r) > 0 {
			v.filter, v.offset = string(r[:len(r)-1]), 0
		}
	default:
		if v.editing && k >= 0 {
			if len([]rune(v.filter)) < maxFilterRunes {
				v.filter, v.offset = v.filter+string(rune(k)), 0
			}
			break
		}
		switch k {
		case 'q':
			return v, true
		case 's':
			v.order, v.offset = (v.order+1)%orders, 0
		case '/':
			v.editing = true
		case 'f':
			v.tab, v.offset = tabFunctions, 0
		case 'm':
			v.tab, v.offset = tabModels, 0
		}
	}
	v.offset = max(0, min(v.offset, last))
	return v, false
}

// sortKey is what rows are sorted and filtered by.
type sortKey struct {
	name         string
	queries, p99 float64
}

func (r *Function) sortKey() sortKey { return sortKey{r.Name, r.QueriesPerSecond, r.P99MS} }
func (r *Model) sortKey() sortKey    { return sortKey{r.Model, r.QueriesPerSecond, r.P99MS} }

// selected returns a new slice with the rows whose names match the filter, in the view's order.
func selected[T any, P interface {
	*T
	sortKey() sortKey
}](v view, rows []T) []T {
	filter := strings.ToLower(v.filter)
	var out []T
	for i := range rows {
		if strings.Contains(strings.ToLower(P(&rows[i]).sortKey().name), filter) {
			out = append(out, rows[i])
		}
	}
	slices.SortStableFunc(out, func(a, b T) int {
		x, y := P(&a).sortKey(), P(&b).sortKey()
		by := 0
		switch v.order {
		case byQueries:
			by = cmp.Compare(y.queries, x.queries)
		case byP99:
			by = cmp.Compare(y.p99, x.p99)
		}
		return cmp.Or(by, cmp.Compare(x.name, y.name))
	})
	return out
}

// rows is the number of rows that the view selects from a frame.
func (v view) rows(f *Frame) int {
	if v.tab == tabModels {
		return len(selected(v, f.Models))
	}
	return len(selected(v, f.Functions))
}
