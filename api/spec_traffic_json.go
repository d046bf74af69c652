package api

import (
	"encoding/json"
	"errors"
	"fmt"
)

// allVersions is how manifests write the policy that selects all versions.
const allVersions = "all"

// versionPolicyJSON is the object form, without the methods.
type versionPolicyJSON VersionPolicy

// MarshalJSON writes "all", or an object with latest or specific.
func (p VersionPolicy) MarshalJSON() ([]byte, error) {
	if p.All {
		if p.Latest != 0 || len(p.Specific) > 0 {
			return nil, errors.New("versions: has more than one of all, latest and specific")
		}
		return json.Marshal(allVersions)
	}
	return json.Marshal(versionPolicyJSON(p))
}

// UnmarshalJSON reads both forms.
func (p *VersionPolicy) UnmarshalJSON(data []byte) error {
	*p = VersionPolicy{}
	var word string
	if json.Unmarshal(data, &word) == nil && word != "" {
		if word != allVersions {
			return fmt.Errorf("versions: %.40q: expected %q, or an object with latest or specific", word, allVersions)
		}
		p.All = true
		return nil
	}
	var j versionPolicyJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return fmt.Errorf("versions: expected %q, or an object with latest or specific: %w", allVersions, err)
	}
	*p = VersionPolicy(j)
	return nil
}
