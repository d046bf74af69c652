package api

import (
	"fmt"
	"strings"
)

// ModelID names one immutable version of a model. A version is a string; versions that are numbers are ordered as
// numbers.
type ModelID struct {
	Name, Version string
}

// String is "name@version".
func (m ModelID) String() string { return m.Name + "@" + m.Version }

// ParseModelRef reads "name" or "name@version". Without a version, Version is empty.
func ParseModelRef(s string) (ModelID, error) {
	name, version, pinned := strings.Cut(s, "@")
	if err := CheckName("model", name); err != nil {
		return ModelID{}, err
	}
	if pinned {
		if err := CheckVersion(version); err != nil {
			return ModelID{}, err
		}
	}
	return ModelID{Name: name, Version: version}, nil
}

// ReservedNames are the first path segments that the function port uses itself; no function may have one as its name.
var ReservedNames = []string{"v1", "v2", "healthz", "readyz", "metrics", "admin", "openapi.yaml"}

// LaterReservedNames were reserved when functions could have them already. Those that are declared keep working; new ones are refused.
var LaterReservedNames = []string{"docs"}

// MaxNameBytes is DNS-1123's limit for a label: names end up in host names, file names and metric labels.
const MaxNameBytes = 63 //xebec:limit a name or version

// CheckName accepts DNS-1123 labels: lower-case letters, digits and '-', starting and ending with a letter or digit.
// Names become part of URLs, environment variables, cgroup and container names, so nothing else is accepted.
func CheckName(what, s string) error {
	if s == "" {
		return fmt.Errorf("%s name is empty", what)
	}
	if len(s) > MaxNameBytes {
		return fmt.Errorf("%s name %.20q… has %d bytes: expected at most %d", what, s, len(s), MaxNameBytes)
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (c != '-' || i == 0 || i == len(s)-1) {
			return fmt.Errorf("%s name %q: expected lower-case letters, digits and '-' (not first or last)", what, s)
		}
	}
	return nil
}

// CheckVersion accepts 1 to 63 letters, digits, '.', '_' and '-', starting with a letter or digit.
func CheckVersion(s string) error {
	if s == "" || len(s) > MaxNameBytes {
		return fmt.Errorf("version %.20q has %d bytes: expected 1 to %d", s, len(s), MaxNameBytes)
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return fmt.Errorf("version %q: expected letters, digits, '.', '_' and '-', starting with a letter or digit", s)
		}
	}
	return nil
}

// CompareVersions orders versions and returns -1, 0 or 1. Two plain numbers compare as numbers, a number comes after
// any other string (as releases follow experiments), and other strings compare by their bytes.
func CompareVersions(a, b string) int {
	an, bn := isNumber(a), isNumber(b)
	switch {
	case an && bn:
		a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
		if len(a) != len(b) {
			if len(a) < len(b) {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	case an:
		return 1
	case bn:
		return -1
	}
	return strings.Compare(a, b)
}

func isNumber(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
