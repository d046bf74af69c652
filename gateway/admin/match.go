package admin

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
)

// An object's entity tag (RFC 9110, section 8.8.3) is its revision in quotes. It identifies the declaration, the part
// of an answer that a client can change. Counts and states in the answer change all the time, and a client does not
// write them back.

// tag sets the entity tag of an answer about one object.
func tag(c *app.RequestContext, revision uint64) {
	c.Response.Header.Set("ETag", `"`+strconv.FormatUint(revision, 10)+`"`)
}

// expectedRevision returns the revision at which the caller has seen the object that is changed, from the header
// If-Match (RFC 9110, section 13.1.1). The result is empty without the header.
func expectedRevision(c *app.RequestContext, kind api.Kind, id api.ModelID) ([]api.ObjectRevision, error) {
	given, err := matchHeader(c)
	if err != nil || given == "" {
		return nil, err
	}
	revision, err := parseTag(given)
	if err != nil {
		return nil, err
	}
	return []api.ObjectRevision{{Kind: kind, Name: id.Name, Version: id.Version, Revision: revision}}, nil
}

// expectedOf combines the header If-Match, which applies to a set of one object, with the revisions in the documents.
func expectedOf(c *app.RequestContext, set *manifest.Set, written []api.ObjectRevision) ([]api.ObjectRevision, error) {
	if set.Len() != 1 {
		return written, rejectIfMatch(c, fmt.Sprintf("this declares %d: give each document its own field revision", set.Len()))
	}
	kind, id := api.KindModel, api.ModelID{}
	switch {
	case len(set.Models) == 1:
		id = set.Models[0].ID()
	case len(set.Functions) == 1:
		kind, id.Name = api.KindFunction, set.Functions[0].Name
	default:
		kind, id.Name = api.KindTraffic, set.Traffic[0].Model
	}
	expected, err := expectedRevision(c, kind, id)
	if err == nil && len(expected) > 0 && len(written) > 0 {
		err = api.Errorf(api.InvalidArgument, "both the header If-Match and the document's field revision are given: expected one of them")
	}
	return append(expected, written...), err
}

// rejectIfMatch rejects If-Match if more than one object is changed: it cannot be honoured.
func rejectIfMatch(c *app.RequestContext, what string) error {
	given, err := matchHeader(c)
	if err == nil && given != "" {
		err = api.Errorf(api.InvalidArgument, "the header If-Match applies to one object, but %s", what)
	}
	return err
}

// matchHeader returns the header If-Match, or "" if there is none.
func matchHeader(c *app.RequestContext) (string, error) {
	if len(c.Request.Header.PeekAll("If-None-Match")) > 0 {
		return "", api.Errorf(api.InvalidArgument, `the header If-None-Match is not supported: to require that an object is not declared yet, send If-Match: "0"`)
	}
	switch given := c.Request.Header.PeekAll("If-Match"); {
	case len(given) == 0:
		return "", nil
	case len(given) > 1:
		return "", api.Errorf(api.InvalidArgument, "the header If-Match occurs %d times: expected once", len(given))
	case len(given[0]) == 0:
		return "", api.Errorf(api.InvalidArgument, "the header If-Match is empty: %s", expectedTag)
	default:
		return string(given[0]), nil
	}
}

const expectedTag = `expected one revision in quotes, as in the object's ETag, such as "12", or "0" if it is not declared`

// parseTag parses an entity tag of this API. Other tags, and lists of tags, could never match: they are an error, so
// that the caller notices.
func parseTag(given string) (uint64, error) {
	if strings.HasPrefix(given, "W/") {
		return 0, api.Errorf(api.InvalidArgument, "the header If-Match %.60q: a weak tag matches nothing; did a proxy weaken it? %s", given, expectedTag)
	}
	digits, opened := strings.CutPrefix(given, `"`)
	digits, closed := strings.CutSuffix(digits, `"`)
	revision, err := strconv.ParseUint(digits, 10, 64)
	if !opened || !closed || err != nil || strconv.FormatUint(revision, 10) != digits {
		return 0, api.Errorf(api.InvalidArgument, "the header If-Match %.60q: %s", given, expectedTag)
	}
	return revision, nil
}
