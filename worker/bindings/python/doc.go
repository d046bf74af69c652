// Package python has the files of the Python binding, for the environments that the gateway builds for models.
//
// It promises package venv that what [Source] returns can be imported as the package xebec, by every Python that the binding
// supports. It does not have the C extension, without which a worker receives descriptors through its socket. The binding itself, its
// documentation and its tests are in this folder too, and know nothing of this package.
package python

import (
	"embed"
	"io/fs"
)

//go:embed src/xebec/*.py src/xebec/*.pyi src/xebec/py.typed
var files embed.FS

// Source has the files of the Python package xebec.
func Source() fs.FS {
	sub, err := fs.Sub(files, "src/xebec")
	if err != nil {
		panic(err) // the path is a constant
	}
	return sub
}
