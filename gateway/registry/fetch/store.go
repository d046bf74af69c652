package fetch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/registry/watch"
)

const (
	// DefaultEvery is the pause between two looks at an index.
	DefaultEvery = 15 * time.Second
	// scanEvery is the pause between two looks at the directory, which tell that a version is complete.
	scanEvery = time.Second
	// retryAfter is the pause before an archive that was wrong is fetched again.
	retryAfter = time.Minute //xebec:limit pause before a wrong archive of a store is fetched again
	// indexWithin and archiveWithin bound a request.
	indexWithin   = 10 * time.Second //xebec:limit answer of a store with its index
	archiveWithin = 30 * time.Minute //xebec:limit answer of a store with an archive
	// markFile keeps the directory from looking like a disk that is not mounted when the index lists nothing.
	markFile = ".store"
)

// Config configures a Store.
type Config struct {
	// Index is the URL of the index document.
	Index string
	// Dir is where copies are kept.
	Dir string
	// Every is the pause between two looks at the index; DefaultEvery if it is not positive.
	Every time.Duration
	// LimitBytes bounds the archive of a version.
	LimitBytes int64
	// Unpack writes what a tar stream has below a new directory. It takes the stream as hostile.
	Unpack func(ctx context.Context, dir string, stream io.Reader) error
}

// Store is a source of versions. It is not safe for concurrent use.
type Store struct {
	cfg     Config
	index   *url.URL
	client  *http.Client
	watcher *watch.Watcher

	tag     string // of the index, for requests that are answered only if it has changed
	due     time.Time
	entries []Entry
	listed  bool     // entries is what the index lists: it has been read
	problem string   // why the index cannot be read
	invalid []string // what is wrong in it
	wrong   map[api.ModelID]failure
}

// failure is why a version cannot be had, until its entry changes or it is time to try again.
type failure struct {
	entry Entry
	why   string
	until time.Time
}

// New returns a Store. Its error says what is wrong with the URL.
func New(c Config) (*Store, error) {
	index, err := url.Parse(c.Index)
	if err == nil && (index.Scheme != "http" && index.Scheme != "https" || index.Host == "") {
		err = errors.New("expected the address of an index document, such as https://host/models/index.json")
	}
	if err != nil {
		return nil, fmt.Errorf("%q: %w", c.Index, err)
	}
	if c.Every <= 0 {
		c.Every = DefaultEvery
	}
	return &Store{cfg: c, index: index, client: &http.Client{}, watcher: watch.New(watch.Config{Dir: c.Dir}), wrong: map[api.ModelID]failure{}}, nil
}

// Name is the address of the index, without a password or a signature in it.
func (s *Store) Name() string {
	u := url.URL{Scheme: s.index.Scheme, Host: s.index.Host, Path: s.index.Path}
	return u.String()
}

// Scan fetches what is missing, and reports what is there.
func (s *Store) Scan() watch.Report {
	s.refresh(context.Background())
	for s.fetchNext(context.Background()) {
	}
	return s.report()
}

// Run calls report with what is there, first and when that changes, until ctx ends.
func (s *Store) Run(ctx context.Context, report func(watch.Report)) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	var last watch.Report
	for first := true; ; {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		if !time.Now().Before(s.due) {
			s.refresh(ctx)
		}
		s.fetchNext(ctx)
		if r := s.report(); ctx.Err() == nil && (first || !reflect.DeepEqual(r, last)) {
			first, last = false, r
			report(r)
		}
		pause.Reset(min(scanEvery, s.cfg.Every))
	}
}

func (s *Store) report() watch.Report {
	r := s.watcher.Scan()
	var problems []watch.Problem
	for _, text := range append([]string{s.problem}, s.invalid...) {
		if text != "" {
			problems = append(problems, watch.Problem{Message: fmt.Sprintf("%s: %s", s.Name(), text)})
		}
	}
	for id, f := range s.wrong {
		problems = append(problems, watch.Problem{Name: id.Name, Version: id.Version, Message: fmt.Sprintf("%s: %s: %s", s.Name(), id, f.why)})
	}
	slices.SortFunc(problems, func(a, b watch.Problem) int { return cmp.Compare(a.Message, b.Message) })
	r.Problems = append(problems[:min(len(problems), watch.MaxProblems)], r.Problems...)
	return r
}

// refresh reads the index, and removes what it does not list.
func (s *Store) refresh(ctx context.Context) {
	s.due = time.Now().Add(s.cfg.Every)
	if err := s.prepare(); err != nil {
		s.problem = err.Error()
		return
	}
	entries, invalid, err := s.read(ctx)
	if err != nil {
		s.problem = withoutQuery(err).Error() + ": what it listed before is kept"
		return
	}
	s.problem = ""
	if entries == nil { // it has not changed
		return
	}
	s.entries, s.invalid, s.listed = entries, invalid, true
	listed := map[api.ModelID]bool{}
	for _, e := range entries {
		listed[e.id()] = true
	}
	for id := range s.wrong {
		if !listed[id] {
			delete(s.wrong, id)
		}
	}
	if len(invalid) == 0 { // else it may list what could not be understood
		s.removeOthers(listed)
	}
}

// prepare makes the directory, and removes what an earlier life left half done.
func (s *Store) prepare() error {
	if s.listed {
		return nil
	}
	if err := os.MkdirAll(s.cfg.Dir, 0o700); err != nil {
		return err
	}
	left, err := filepath.Glob(filepath.Join(s.cfg.Dir, ".new-*"))
	for _, path := range left {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return errors.Join(err, os.WriteFile(filepath.Join(s.cfg.Dir, markFile), []byte(s.Name()+"\n"), 0o600))
}

// read returns nil entries if the index has not changed.
func (s *Store) read(ctx context.Context) (entries []Entry, invalid []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, indexWithin)
	defer cancel()
	res, err := s.get(ctx, s.index, s.tag)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNotModified {
		return nil, nil, nil
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, MaxIndexBytes+1))
	if err != nil {
		return nil, nil, err
	}
	if entries, invalid, err = parse(data, s.index, s.cfg.LimitBytes); err == nil {
		s.tag = res.Header.Get("ETag")
	}
	return entries, invalid, err
}

func (s *Store) get(ctx context.Context, u *url.URL, tag string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept-Encoding", "identity") // hashes and sizes are those of the bytes as they are
	if tag != "" {
		req.Header.Set("If-None-Match", tag)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK && (tag == "" || res.StatusCode != http.StatusNotModified) {
		_ = res.Body.Close()
		return nil, fmt.Errorf("answers %s", res.Status)
	}
	return res, nil
}

// withoutQuery takes the address out of an error of a request: it may have a signature.
func withoutQuery(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// fetchNext fetches a version that is listed and not there. It returns false if there is none.
func (s *Store) fetchNext(ctx context.Context) bool {
	for _, e := range s.entries {
		f, failed := s.wrong[e.id()]
		if failed && f.entry == e && time.Now().Before(f.until) {
			continue
		}
		sum, there, err := s.has(e)
		switch {
		case err == nil && there && sum == e.SHA256:
			delete(s.wrong, e.id())
			continue
		case err == nil && there:
			err = fmt.Errorf("the index has the hash %s, and the version has %s: a version never changes, so it keeps its files; list these as another version", e.SHA256, sum)
		case err == nil:
			err = s.fetch(ctx, e)
		}
		if delete(s.wrong, e.id()); err != nil && ctx.Err() == nil {
			s.wrong[e.id()] = failure{e, withoutQuery(err).Error(), time.Now().Add(retryAfter)}
		}
		return ctx.Err() == nil
	}
	return false
}

func (s *Store) path(e Entry) string { return filepath.Join(s.cfg.Dir, e.Name, e.Version) }
func (s *Store) sumFile(e Entry) string {
	return filepath.Join(s.cfg.Dir, e.Name, "."+e.Version+".sha256")
}

// has returns the hash of the archive that a version was unpacked from.
func (s *Store) has(e Entry) (sum string, there bool, err error) {
	if _, err := os.Stat(s.path(e)); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return "", false, err
	}
	data, err := os.ReadFile(s.sumFile(e))
	return string(data), true, err
}

// fetch downloads an archive, checks it, unpacks it, and puts it in place at once.
func (s *Store) fetch(ctx context.Context, e Entry) error {
	ctx, cancel := context.WithTimeout(ctx, archiveWithin)
	defer cancel()
	tmp, err := os.MkdirTemp(s.cfg.Dir, ".new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // what is left is removed at the next start
	archive, err := os.Create(filepath.Join(tmp, "archive"))
	if err != nil {
		return err
	}
	defer archive.Close()
	if err := s.download(ctx, e, archive); err != nil {
		return err
	}
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return err
	}
	files := filepath.Join(tmp, "files")
	if err := os.Mkdir(files, 0o700); err != nil {
		return err
	}
	if err := s.cfg.Unpack(ctx, files, archive); err != nil {
		return fmt.Errorf("%s", strings.ReplaceAll(err.Error(), files+"/", ""))
	}
	if err := os.MkdirAll(filepath.Dir(s.path(e)), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(s.sumFile(e), []byte(e.SHA256), 0o600); err != nil {
		return err
	}
	return os.Rename(files, s.path(e))
}

func (s *Store) download(ctx context.Context, e Entry, to io.Writer) error {
	u, err := s.index.Parse(e.URL)
	if err != nil {
		return err
	}
	res, err := s.get(ctx, u, "")
	if err != nil {
		return fmt.Errorf("its archive: %w", withoutQuery(err))
	}
	defer res.Body.Close()
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, hash), io.LimitReader(res.Body, e.Size+1))
	switch sum := hex.EncodeToString(hash.Sum(nil)); {
	case err != nil:
		return fmt.Errorf("its archive cannot be read behind %d bytes: %w", n, err)
	case n > e.Size:
		return fmt.Errorf("its archive has more than the %d bytes that the index says", e.Size)
	case n < e.Size:
		return fmt.Errorf("its archive has %d bytes: expected %d, as the index says", n, e.Size)
	case sum != e.SHA256:
		return fmt.Errorf("its archive has the sha256 %s: expected %s, as the index says", sum, e.SHA256)
	}
	return nil
}

// removeOthers removes the versions that are not listed.
func (s *Store) removeOthers(listed map[api.ModelID]bool) {
	there, _ := filepath.Glob(filepath.Join(s.cfg.Dir, "*", "*")) // the pattern is valid
	for _, path := range there {
		e := Entry{Name: filepath.Base(filepath.Dir(path)), Version: filepath.Base(path)}
		if strings.HasPrefix(e.Name, ".") || strings.HasPrefix(e.Version, ".") || listed[e.id()] {
			continue
		}
		gone := filepath.Join(s.cfg.Dir, ".new-gone-"+e.Name+"-"+e.Version)
		if err := os.Rename(path, gone); err != nil {
			s.problem = err.Error()
			continue
		}
		_ = os.RemoveAll(gone)            // or at the next start
		_ = os.Remove(s.sumFile(e))       // the next fetch writes it again
		_ = os.Remove(filepath.Dir(path)) // if it is empty
	}
}
