package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/containers/snapshot"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
)

// elsewhere reports whether the gateway is on another host, as far as its address says so.
func (c *cli) elsewhere() bool {
	base, err := baseURL("--admin", c.admin)
	if err != nil {
		return false // the next request says so
	}
	u, err := url.Parse(base)
	if err != nil || u.Hostname() == "localhost" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return ip == nil || !ip.IsLoopback()
}

// upload sends the files of a model directory to the gateway, and completes the deployment with what names them there.
func (c *cli) upload(ctx context.Context, set *manifest.Set, q *api.Deployment) error {
	text, err := os.ReadFile(filepath.Join(q.Dir, manifest.ModelFile))
	if err != nil {
		return err
	}
	m := &set.Models[0]
	if m.Dir != q.Dir {
		return fmt.Errorf("%s: dir: %s: a model directory that is uploaded has its files in itself: remove the field", filepath.Join(q.Dir, manifest.ModelFile), m.Dir)
	}
	var u api.Upload
	if err := c.call(ctx, http.MethodPost, "/v1/uploads", "", nil, &u); err != nil {
		return err
	}
	size := min(max(u.PartBytes, 1), api.UploadPartBytes)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from, to := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		_, err := snapshot.Pack(ctx, q.Dir, deployment.TreeOptions(m), to)
		to.CloseWithError(err)
		packed <- err
	}()
	err = c.sendParts(ctx, u.Upload, from, make([]byte, size))
	from.CloseWithError(err)
	cancelled := err != nil
	if packError := <-packed; packError != nil && !cancelled {
		err = packError
	}
	if err != nil {
		return err
	}
	var files api.UploadedFiles
	if err := c.call(ctx, http.MethodPost, "/v1/uploads/"+url.PathEscape(u.Upload), "", nil, &files); err != nil {
		return err
	}
	q.Manifest, q.Digest = string(text), files.Digest
	return nil
}

// sendParts sends a stream in parts.
func (c *cli) sendParts(ctx context.Context, upload string, stream io.Reader, buf []byte) error {
	for at := int64(0); ; {
		n, err := io.ReadFull(stream, buf)
		if n > 0 {
			var part api.UploadPart
			path := fmt.Sprintf("/v1/uploads/%s?offset=%d", url.PathEscape(upload), at)
			if err := c.call(ctx, http.MethodPut, path, "application/octet-stream", buf[:n], &part); err != nil {
				return err
			}
			at += int64(n)
		}
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return nil
		default:
			return err
		}
	}
}

// deployDir asks the gateway to declare a model directory, whose files are uploaded where it is on another host.
func (c *cli) deployDir(ctx context.Context, dir string, q api.Deployment, upload bool) (changes api.Changes, err error) {
	if q.Dir, err = filepath.Abs(dir); err != nil {
		return changes, err
	}
	// Read it here first, so that errors name the path that was typed.
	if _, err = manifest.LoadModelDir(dir); err != nil {
		return changes, err
	}
	if upload || c.elsewhere() {
		// The directory is read by its absolute path from here on, like the gateway does.
		set, err := manifest.LoadModelDir(q.Dir)
		if err == nil {
			err = c.upload(ctx, set, &q)
		}
		if err != nil {
			return changes, err
		}
	}
	body, err := json.Marshal(q)
	if err != nil {
		return changes, err
	}
	err = c.onceRead(ctx, func() error {
		return c.call(ctx, http.MethodPost, "/v1/deploy", "application/json", body, &changes)
	})
	return changes, err
}
