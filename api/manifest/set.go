package manifest

import "github.com/xebec-serving/xebec/api"

// Set is what one or several manifests declare. Every spec has its defaults and is valid by itself; no model version and no
// function is there twice.
type Set struct {
	Models    []api.ModelSpec
	Functions []api.FunctionSpec
}

// Len is the number of objects in the set.
func (s *Set) Len() int { return len(s.Models) + len(s.Functions) }

// SetDir says in which directory the models were declared: what relative paths in their specs mean.
func (s *Set) SetDir(dir string) {
	for i := range s.Models {
		s.Models[i].Dir = dir
	}
}
