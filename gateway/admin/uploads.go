package admin

import (
	"context"
	"strconv"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/xebec-serving/xebec/api"
)

// Uploads keeps models' files that come from another host, as a tar stream in parts. Errors are api.Errors.
type Uploads interface {
	// Begin begins an upload, and returns its name.
	Begin() (id string, err error)
	// Append takes the part that begins at an offset, and returns where the next one begins. It does not keep the part.
	Append(id string, offset int64, part []byte) (next int64, err error)
	// Finish keeps the files. The upload ends, whatever it was.
	Finish(ctx context.Context, id string) (api.UploadedFiles, error)
}

var errNoUploads = api.Errorf(api.Unavailable, "the gateway keeps no files of models, so none can be uploaded: start it with a data directory, and without --live-models")

func (h *handlers) beginUpload(_ context.Context, c *app.RequestContext) (any, error) {
	if _, err := query(c); err != nil {
		return nil, err
	}
	if h.options.Uploads == nil {
		return nil, errNoUploads
	}
	id, err := h.options.Uploads.Begin()
	return api.Upload{Upload: id, PartBytes: api.UploadPartBytes}, err
}

func (h *handlers) uploadPart(_ context.Context, c *app.RequestContext) (any, error) {
	q, err := query(c, "offset")
	if err != nil {
		return nil, err
	}
	offset, err := strconv.ParseInt(q["offset"], 10, 64)
	if err != nil || offset < 0 {
		return nil, api.Errorf(api.InvalidArgument, "the query parameter offset=%.40q: expected the number of bytes before this part", q["offset"])
	}
	part, err := bodyOf(c, "application/octet-stream")
	if err != nil {
		return nil, err
	}
	if len(part) > api.UploadPartBytes {
		return nil, api.Errorf(api.TooLarge, "the part has %d bytes: expected at most %d", len(part), api.UploadPartBytes)
	}
	if h.options.Uploads == nil {
		return nil, errNoUploads
	}
	next, err := h.options.Uploads.Append(c.Param("upload"), offset, part)
	return api.UploadPart{Next: next}, err
}

func (h *handlers) finishUpload(ctx context.Context, c *app.RequestContext) (any, error) {
	if _, err := query(c); err != nil {
		return nil, err
	}
	if h.options.Uploads == nil {
		return nil, errNoUploads
	}
	files, err := h.options.Uploads.Finish(ctx, c.Param("upload"))
	if err != nil {
		return nil, err
	}
	setSubject(c, false, files.Digest)
	return files, nil
}
