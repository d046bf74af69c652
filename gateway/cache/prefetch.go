package cache

import "unsafe"

// Prefetch makes the processor load the line of memory at p into its caches, without waiting for it. It is for tables that are larger than these
// caches, like those of this package: worth calling as soon as it is known which element will be read, if something else is to be done before.
func Prefetch[T any](p *T) { prefetch(unsafe.Pointer(p)) }
