package fetch

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"

	"github.com/xebec-serving/xebec/api"
)

const (
	// MaxIndexBytes and MaxVersions bound an index document.
	MaxIndexBytes = 4 << 20 //xebec:limit index document of a store of models
	MaxVersions   = 4096    //xebec:limit versions in a store of models
)

// Entry is a version in an index document: {"models": [{"name": …, "version": …, "url": …, "size": …, "sha256": …}]}.
type Entry struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// URL is that of a tar archive of the version's directory. It may be relative to the index.
	URL string `json:"url"`
	// Size and SHA256 are those of the archive.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

func (e Entry) id() api.ModelID { return api.ModelID{Name: e.Name, Version: e.Version} }

// parse reads an index. invalid says what is wrong with single entries, which are left out; err is about the document.
func parse(data []byte, base *url.URL, limit int64) (entries []Entry, invalid []string, err error) {
	if len(data) > MaxIndexBytes {
		return nil, nil, fmt.Errorf("the index has more than %d bytes", MaxIndexBytes)
	}
	var doc struct {
		Models *[]Entry `json:"models"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err = d.Decode(&doc); err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = fmt.Errorf("there is more behind it")
		}
	}
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("the index is not what was expected, {\"models\": [{\"name\": …, \"version\": …, \"url\": …, \"size\": …, \"sha256\": …}]}: %w", err)
	case doc.Models == nil:
		return nil, nil, fmt.Errorf("the index has no \"models\"")
	case len(*doc.Models) > MaxVersions:
		return nil, nil, fmt.Errorf("the index has %d versions: expected at most %d", len(*doc.Models), MaxVersions)
	}
	entries = []Entry{}
	seen := map[api.ModelID]bool{}
	for i, e := range *doc.Models {
		err := e.check(base, limit)
		if err == nil && seen[e.id()] {
			err = fmt.Errorf("%s is listed twice", e.id())
		}
		if err != nil {
			invalid = append(invalid, fmt.Sprintf("models[%d]: %.500s", i, err))
			continue
		}
		seen[e.id()] = true
		entries = append(entries, e)
	}
	return entries, invalid, nil
}

func (e Entry) check(base *url.URL, limit int64) error {
	if err := api.CheckName("model", e.Name); err != nil {
		return err
	}
	if err := api.CheckVersion(e.Version); err != nil {
		return err
	}
	if u, err := base.Parse(e.URL); err != nil || e.URL == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%s: url: expected that of a tar archive, over http or https", e.id())
	}
	if e.Size <= 0 || e.Size > limit {
		return fmt.Errorf("%s: size: %d: expected 1 to %d bytes (--snapshot-limit)", e.id(), e.Size, limit)
	}
	if sum, err := hex.DecodeString(e.SHA256); err != nil || len(sum) != 32 || e.SHA256 != hex.EncodeToString(sum) {
		return fmt.Errorf("%s: sha256: expected 64 hexadecimal digits in lower case", e.id())
	}
	return nil
}
