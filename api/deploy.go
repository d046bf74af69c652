package api

// Deployment is a request to declare the model of a model directory, and a function of its name unless there is one.
type Deployment struct {
	// Dir is the model directory, an absolute path on the gateway's host.
	Dir string `json:"dir"`
	// Manifest is the text of the directory's xebec.yaml, and Digest names its files, where the directory is on another host: they were
	// uploaded before. Both are empty otherwise.
	Manifest string `json:"manifest,omitempty"`
	Digest   string `json:"digest,omitempty"`
	// NewVersion declares files that differ from those of the version that the directory names as the next version of the model.
	NewVersion bool `json:"new_version,omitempty"`
	// DryRun only judges.
	DryRun bool `json:"dry_run,omitempty"`
}

// Upload is an upload of a model's files that has begun: a tar stream in parts.
type Upload struct {
	Upload string `json:"upload"`
	// PartBytes is the most that one part may have.
	PartBytes int `json:"part_bytes"`
}

// UploadPart answers a part of an upload.
type UploadPart struct {
	// Next is where the next part begins.
	Next int64 `json:"next"`
}

// UploadedFiles are a model's files that were uploaded.
type UploadedFiles struct {
	Digest string `json:"digest"`
	Files  int    `json:"files"`
	Bytes  int64  `json:"bytes"`
}

// UploadPartBytes is the most that one part of an upload may have.
const UploadPartBytes = 4 << 20 //xebec:limit one part of an upload of a model's files
