//go:build amd64 || arm64

package cache

// prefetch makes the processor load a bucket into its caches, and does not wait for it.
//
//go:noescape
func prefetch(b *bucket)
