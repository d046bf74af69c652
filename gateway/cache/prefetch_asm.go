//go:build amd64 || arm64

package cache

import "unsafe"

//go:noescape
func prefetch(p unsafe.Pointer)
