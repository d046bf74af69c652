package state

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A mark is a revision and the commit that made it. After a failover, different commits can have made the same revision.
type mark struct {
	revision uint64
	id       string // hexadecimal
}

// lineage has the last marks that this opened store has seen. It finds the commit of a revision that a caller passes.
type lineage struct {
	lock  sync.Mutex
	marks [64]mark
	next  int
}

func (l *lineage) note(m mark) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if last := (l.next + len(l.marks) - 1) % len(l.marks); m.revision != 0 && l.marks[last] != m {
		l.marks[l.next] = m
		l.next = (l.next + 1) % len(l.marks)
	}
}

// id returns the commit that made a revision when it was last seen, empty if that is too long ago.
func (l *lineage) id(revision uint64) string {
	l.lock.Lock()
	defer l.lock.Unlock()
	for i := range l.marks {
		if m := &l.marks[(l.next+len(l.marks)-1-i)%len(l.marks)]; m.revision == revision {
			return m.id
		}
	}
	return ""
}

// errAgain says that the store no longer continues the one whose first page was read.
var errAgain = errors.New("the store lost commits, or forgot deleted objects, while it was read")

func (r *redisStore) Changes(ctx context.Context, since uint64) (Changes, error) {
	if since > 0 {
		unchanged, err := r.unchanged(ctx, since)
		if err != nil {
			return Changes{}, err
		}
		if unchanged {
			return Changes{Revision: since}, nil
		}
	}
	c, err := r.readChanges(ctx, since)
	if errors.Is(err, errAgain) {
		c, err = r.readChanges(ctx, 0)
	}
	if errors.Is(err, errAgain) {
		return Changes{}, fmt.Errorf("%s: %w, and so again when it was read a second time", r.name, errAgain)
	}
	return c, err
}

// unchanged reports whether the store still has the revision since. It reads the head only.
func (r *redisStore) unchanged(ctx context.Context, since uint64) (bool, error) {
	values, err := r.client.MGet(ctx, objectKeys[0], objectKeys[1]).Result()
	if err != nil {
		return false, r.explain(err)
	}
	if len(values) != 2 || values[0] != any(r.format()) {
		return false, nil // the script reports what is wrong
	}
	text, _ := values[1].(string)
	fields := strings.Fields(text)
	if len(fields) < 2 {
		return false, nil
	}
	revision, err := parseRevision(fields[0])
	if err != nil || revision != since {
		return false, nil
	}
	if id := r.known.id(since); id != "" && id != fields[1] {
		return false, nil
	}
	r.known.note(mark{revision, fields[1]})
	return true, nil
}

// A changesPage is one answer of the script.
type changesPage struct {
	head           mark
	complete, more bool
	floor          string
	last           [2]any // revision and name of the last object visited
	objects        []Object
}

func (r *redisStore) readChanges(ctx context.Context, since uint64) (Changes, error) {
	args := []any{since, r.known.id(since), r.limits.page, redisPageBytes}
	found := map[ObjectKey]Object{}
	for range changesPages {
		answer, err := r.objects(ctx, r.client, "changes", args...)
		if err != nil {
			return Changes{}, err
		}
		page, err := r.parseChanges(answer)
		if err != nil {
			return Changes{}, err
		}
		for _, o := range page.objects {
			found[o.ObjectKey] = o
			if page.complete && o.Data == nil {
				delete(found, o.ObjectKey)
			}
		}
		if len(found) > MaxObjects+r.limits.tombstones {
			return Changes{}, r.damaged(fmt.Sprintf("there are more than %d objects", MaxObjects))
		}
		if !page.more {
			r.known.note(page.head)
			c := Changes{Revision: page.head.revision, Complete: page.complete}
			for _, o := range found {
				c.Objects = append(c.Objects, o)
			}
			sortObjects(c.Objects)
			return c, nil
		}
		if len(args) == 4 {
			complete := "0"
			if page.complete {
				complete = "1"
			}
			args = []any{page.head.revision, page.head.id, r.limits.page, redisPageBytes, "", "", complete, page.floor}
		}
		args[4], args[5] = page.last[0], page.last[1]
	}
	return Changes{}, fmt.Errorf("%s: the declared objects change faster than they can be read: find out what commits so often", r.name)
}

func (r *redisStore) parseChanges(answer []any) (*changesPage, error) {
	const header = 7
	if len(answer) < header || (len(answer)-header)%3 != 0 || len(answer) > header+3*redisPage {
		return nil, r.unreadable()
	}
	var texts [header]string
	for i := range texts {
		var ok bool
		if texts[i], ok = answer[i].(string); !ok {
			return nil, r.unreadable()
		}
	}
	revision, err := parseRevision(texts[0])
	if err != nil {
		return nil, r.unreadable()
	}
	page := &changesPage{
		head: mark{revision, texts[1]}, complete: texts[2] == "1", more: texts[3] == "1", floor: texts[4], last: [2]any{texts[5], texts[6]},
		objects: make([]Object, 0, (len(answer)-header)/3),
	}
	for i := header; i < len(answer); i += 3 {
		field, _ := answer[i].(string)
		at, _ := answer[i+1].(string)
		o := Object{}
		if o.ObjectKey, err = parseObjectKey(field); err != nil {
			return nil, r.damaged(fmt.Sprintf("%.600q: %v", field, err))
		}
		if o.Revision, err = parseRevision(at); err != nil || o.Revision == 0 || o.Revision > revision {
			return nil, r.damaged(fmt.Sprintf("%s has revision %.30q, and the store has %d", o.ObjectKey, at, revision))
		}
		switch document := answer[i+2].(type) {
		case nil:
		case string:
			if document == "" || len(document) > MaxObjectBytes {
				return nil, r.damaged(fmt.Sprintf("%s has %d bytes: expected 1 to %d", o.ObjectKey, len(document), MaxObjectBytes))
			}
			o.Data = []byte(document)
		default:
			return nil, r.unreadable()
		}
		page.objects = append(page.objects, o)
	}
	return page, nil
}

func (r *redisStore) History(ctx context.Context, subject string, limit int) ([]Event, error) {
	var events []Event
	before := strconv.FormatUint(1<<53, 10)
	for len(events) < limit {
		answer, err := r.objects(ctx, r.client, "history", escape(subject), before, min(limit-len(events), r.limits.page), redisPageBytes)
		if err != nil {
			return nil, err
		}
		if len(answer)%2 != 1 || len(answer) > 1+2*redisPage {
			return nil, r.unreadable()
		}
		for i := 1; i < len(answer); i += 2 {
			number, _ := answer[i].(string)
			text, _ := answer[i+1].(string)
			e, err := parseEvent(text)
			if err == nil && subject != "" && e.Subject != subject {
				err = fmt.Errorf("its subject is %q, and the index says %q", e.Subject, subject)
			}
			if err != nil {
				return nil, r.damaged(fmt.Sprintf("event %.20s: %v", number, err))
			}
			events = append(events, e)
			before = number
		}
		if len(answer) == 1 || answer[0] != any("1") {
			break
		}
	}
	return events, nil
}

// parseEvent parses an event that commitArgs wrote: a line with revision, nanoseconds and subject, then the data.
func parseEvent(text string) (Event, error) {
	line, data, found := strings.Cut(text, "\n")
	fields := strings.Split(line, " ")
	if !found || len(fields) != 3 || len(data) > MaxObjectBytes {
		return Event{}, errors.New("it is not what this program writes")
	}
	revision, err := parseRevision(fields[0])
	if err != nil {
		return Event{}, fmt.Errorf("its revision is %.30q", fields[0])
	}
	at, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return Event{}, fmt.Errorf("its time is %.30q", fields[1])
	}
	subject, err := url.PathUnescape(fields[2])
	if err != nil || escape(subject) != fields[2] || subject == "" || len(subject) > maxObjectNameBytes {
		return Event{}, fmt.Errorf("its subject is %.80q", fields[2])
	}
	return Event{Revision: revision, At: time.Unix(0, at).UTC(), Subject: subject, Data: []byte(data)}, nil
}
