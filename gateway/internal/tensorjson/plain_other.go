//go:build !amd64

package tensorjson

const hasVectors = false

func plainVectors(_ []byte, i int, _ []plain) (n, next int) { return 0, i }
