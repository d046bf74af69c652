package deployment

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/xebec-serving/xebec/api"
)

// Measured is what was measured of the version in this process, or recalled: the times of its batches (nil: nothing), and how many of its
// predictions had feedback, with the sum of their losses. It takes no lock while there is nothing.
func (d *Deployment) Measured() (profile *api.KnownProfile, labels uint64, losses float64) {
	labels, losses = d.model.Judged.Read()
	return d.Profile(), labels, losses
}

// Drifted compares the queries that the version has served with those that it was validated with; nil: there are too few.
func (d *Deployment) Drifted() *api.DriftStatus {
	if w := d.model.Drift.Load(); w != nil {
		return w.Report()
	}
	return nil
}

// Watched reports whether the version has been validated with queries, so that there may be drift.
func (d *Deployment) Watched() bool { return d.model.Drift.Load() != nil }

// Fingerprint names what the version's times and answers follow from: its files, its command and what it runs in. Empty: its files are
// not known yet.
func (d *Deployment) Fingerprint() string {
	spec, digest := d.Spec(), d.Digest()
	if digest == "" && spec.Dir != "" {
		return ""
	}
	data, err := json.Marshal(struct {
		Digest, Image, Python, Device string
		Command                       []string
		Inputs, Outputs               []api.TensorSpec
		Limits                        api.LimitSpec
		GPU                           int
	}{digest, spec.Run.Image, spec.Python, spec.Device, spec.Run.Command, spec.Inputs, spec.Outputs, spec.Limits, spec.Resources.GPU})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}
