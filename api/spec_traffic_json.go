package api

import (
	"encoding/json"
	"errors"
	"fmt"
)

type trafficJSON struct {
	Name       string            `json:"name"`
	Versions   VersionPolicy     `json:"versions,omitzero"`
	Transition string            `json:"transition,omitempty"`
	Serving    string            `json:"serving,omitempty"`
	Split      *shareJSON        `json:"split,omitempty"`
	Shadow     *shareJSON        `json:"shadow,omitempty"`
	Rollout    *rolloutJSON      `json:"rollout,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Rollback   *rollbackJSON     `json:"rollback,omitempty"`
}

type shareJSON struct {
	Version string  `json:"version"`
	Percent float64 `json:"percent"`
}

type rolloutJSON struct {
	Version string     `json:"version"`
	Policy  PolicySpec `json:"policy,omitzero"`
	Guard   guardJSON  `json:"guard,omitzero"`
}

type guardJSON struct {
	MinFeedback      int     `json:"min_feedback,omitempty"`
	MaxErrorIncrease float64 `json:"max_error_increase,omitempty"`
	MaxP99Increase   float64 `json:"max_p99_increase,omitempty"`
}

type rollbackJSON struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Reason string `json:"reason,omitempty"`
}

// MarshalJSON writes the spec with the names of the manifest.
func (t TrafficSpec) MarshalJSON() ([]byte, error) {
	j := trafficJSON{
		Name: t.Model, Versions: t.Versions, Transition: t.Transition, Serving: t.Serving, Split: (*shareJSON)(t.Split), Shadow: (*shareJSON)(t.Shadow),
		Labels: t.Labels, Rollback: (*rollbackJSON)(t.Rollback),
	}
	if r := t.Rollout; r != nil {
		j.Rollout = &rolloutJSON{r.Version, r.Policy, guardJSON(r.Guard)}
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON wrote; see [ModelSpec.UnmarshalJSON].
func (t *TrafficSpec) UnmarshalJSON(data []byte) error {
	var j trafficJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	*t = TrafficSpec{
		Model: j.Name, Versions: j.Versions, Transition: j.Transition, Serving: j.Serving, Split: (*VersionShare)(j.Split), Shadow: (*VersionShare)(j.Shadow),
		Labels: j.Labels, Rollback: (*RollbackSpec)(j.Rollback),
	}
	if r := j.Rollout; r != nil {
		t.Rollout = &RolloutSpec{r.Version, r.Policy, GuardSpec(r.Guard)}
	}
	return nil
}

// allVersions is how manifests write the policy that selects all versions.
const allVersions = "all"

type versionPolicyJSON struct {
	Latest   int      `json:"latest,omitempty"`
	Specific []string `json:"specific,omitempty"`
}

// MarshalJSON writes "all", or an object with latest or specific.
func (p VersionPolicy) MarshalJSON() ([]byte, error) {
	if p.All {
		if p.Latest != 0 || len(p.Specific) > 0 {
			return nil, errors.New("versions: has more than one of all, latest and specific")
		}
		return json.Marshal(allVersions)
	}
	return json.Marshal(versionPolicyJSON{p.Latest, p.Specific})
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
	p.Latest, p.Specific = j.Latest, j.Specific
	return nil
}
