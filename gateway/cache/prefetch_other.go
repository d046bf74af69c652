//go:build !amd64 && !arm64

package cache

func prefetch(*bucket) {}
