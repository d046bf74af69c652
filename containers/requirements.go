package containers

import (
	"os"
	"path/filepath"
)

// The files by which a model's directory asks for Python packages. The first that is there counts.
const (
	RequirementsFile = "requirements.txt"
	ProjectFile      = "pyproject.toml"
)

// EnvironmentPrefix begins the lines in a replica's output that tell how its environment is built.
const EnvironmentPrefix = "environment: "

// HasRequirements reports whether a model's directory may ask for Python packages.
func HasRequirements(dir string) bool {
	for _, name := range []string{RequirementsFile, ProjectFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}
