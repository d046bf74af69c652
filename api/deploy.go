package api

// Deployment is a request to declare the model of a model directory, and a function of its name unless there is one.
type Deployment struct {
	// Dir is the model directory, an absolute path on the gateway's host.
	Dir string `json:"dir"`
	// NewVersion declares files that differ from those of the version that the directory names as the next version of the model.
	NewVersion bool `json:"new_version,omitempty"`
	// DryRun only judges.
	DryRun bool `json:"dry_run,omitempty"`
}
