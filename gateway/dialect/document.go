package dialect

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Document serves a document that never changes while the gateway runs, with additional header fields. A client that has it gets
// 304 (RFC 9110, section 13.1.2).
func Document(contentType string, body []byte, more ...Field) func(Exchange) {
	hash := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(hash[:8]) + `"`
	fields := append([]Field{{"Etag", []byte(tag)}, {"Cache-Control", []byte("no-cache")}}, more...)
	return func(x Exchange) {
		if matches(string(x.Header("If-None-Match")), tag) {
			x.Answer(&Answer{Status: 304, ContentType: contentType, Fields: fields})
			return
		}
		x.Answer(&Answer{Status: 200, ContentType: contentType, Fields: fields, Body: body})
	}
}

// matches reports whether a condition names the tag. The comparison is weak: a cache may have weakened the tag.
func matches(condition, tag string) bool {
	for given := range strings.SplitSeq(condition, ",") {
		if given = strings.TrimSpace(given); given == "*" || strings.TrimPrefix(given, "W/") == tag {
			return true
		}
	}
	return false
}
