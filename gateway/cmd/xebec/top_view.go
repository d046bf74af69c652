package main

import (
	"cmp"
	"slices"
	"strings"
)

// The tabs and orders of "xebec top".
type (
	topTab   int
	topOrder int
)

const (
	tabFunctions topTab = iota
	tabModels
	tabs
)

const (
	byQueries topOrder = iota
	byP99
	byName
	orders
)

func (o topOrder) String() string {
	return [...]string{"queries/s", "p99", "name"}[o]
}

// maxFilterRunes is longer than any name.
const maxFilterRunes = 128

// topView is what a person has chosen to see.
type topView struct {
	tab   topTab
	order topOrder
	// filter is a part of the names that are shown; editing: it is being typed.
	filter  string
	editing bool
	// offset is how many rows have been scrolled away.
	offset int
	colour bool
	// problem is why the figures are old; empty: they are not.
	problem string
}

// press changes the view as a key says; quit means that it is over. Of rows there are so many, of which page fit.
func (v topView) press(k topKey, rows, page int) (next topView, quit bool) {
	last := max(0, rows-page)
	v.offset = min(v.offset, last)
	switch k {
	case keyInterrupt:
		return v, true
	case keyUp:
		v.offset--
	case keyDown:
		v.offset++
	case keyPageUp:
		v.offset -= max(1, page-1) // the last line of a page may say how many rows there are below it
	case keyPageDown:
		v.offset += max(1, page-1)
	case keyHome:
		v.offset = 0
	case keyEnd:
		v.offset = last
	case keyTab:
		v.tab, v.offset = (v.tab+1)%tabs, 0
	case keyEscape:
		v.filter, v.editing, v.offset = "", false, 0
	case keyEnter:
		v.editing = false
	case keyBackspace:
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

// rank is what rows are sorted by.
type rank struct {
	name         string
	queries, p99 float64
}

func (r *topFunction) rank() rank { return rank{r.Name, r.QueriesPerSecond, r.P99MS} }
func (r *topModel) rank() rank    { return rank{r.Model, r.QueriesPerSecond, r.P99MS} }

// chosen has the rows whose names match the filter, in the view's order, in a slice of its own.
func chosen[T any, P interface {
	*T
	rank() rank
}](v topView, rows []T) []T {
	filter := strings.ToLower(v.filter)
	var out []T
	for i := range rows {
		if strings.Contains(strings.ToLower(P(&rows[i]).rank().name), filter) {
			out = append(out, rows[i])
		}
	}
	slices.SortStableFunc(out, func(a, b T) int {
		x, y := P(&a).rank(), P(&b).rank()
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

// rows is how many rows the view has of a frame.
func (v topView) rows(f *topFrame) int {
	if v.tab == tabModels {
		return len(chosen(v, f.Models))
	}
	return len(chosen(v, f.Functions))
}
