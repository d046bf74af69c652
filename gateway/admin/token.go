package admin

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/gateway/internal/secret"
)

// Limits of token files.
const (
	// MinTokenBytes is the length from which a random token cannot be guessed: 16 characters of base64 have 96 bits.
	MinTokenBytes = 16 //xebec:limit shortest token
	// MaxTokenBytes is longer than any issuer's token, and shorter than the limit of a header.
	MaxTokenBytes = 4096 //xebec:limit longest token
	// maxTokens and maxTokenFileBytes bound the work for one request.
	maxTokens         = 256      //xebec:limit tokens in a file
	maxTokenFileBytes = 64 << 10 //xebec:limit a token file
	maxTokenNameBytes = 64
)

// refusalLogInterval is the least interval between log lines about refused requests, so that guessing tokens does not
// fill the disk.
const refusalLogInterval = time.Second

// Tokens are the tokens of a token file, one a line: TOKEN or NAME:TOKEN. Empty lines and lines that begin with # are
// ignored. The file must be a regular file that belongs to the user who runs the program, or to root, without
// permissions for others. It is checked at every request, so tokens are issued, renewed and revoked without a restart.
// While the file is missing or invalid, all requests are refused. Tokens is safe for concurrent use.
type Tokens struct {
	now func() time.Time

	mu    sync.Mutex
	file  secret.File
	known []token
	err   error // of the last read

	refused, unlogged uint64
	loggedAt          time.Time
}

// token holds only a token's hash, so that neither a core dump nor the duration of a comparison reveals the token.
type token struct {
	name string
	hash [sha256.Size]byte
}

// OpenTokens reads a token file.
func OpenTokens(path string) (*Tokens, error) { return openTokens(path, time.Now) }

func openTokens(path string, now func() time.Time) (*Tokens, error) {
	t := &Tokens{now: now, file: tokenFile(path, now)}
	t.load()
	if t.err != nil {
		return nil, t.err
	}
	return t, nil
}

func tokenFile(path string, now func() time.Time) secret.File {
	return secret.File{Path: path, What: "token file", MaxBytes: maxTokenFileBytes, Forbidden: 0o077, ChmodArg: "600", Now: now}
}

// ReadToken returns the first token of a file, for use by a client. The file must satisfy the same rules as a
// gateway's.
func ReadToken(path string) (string, error) {
	file := tokenFile(path, time.Now)
	data, err := file.Read()
	if err != nil {
		return "", err
	}
	first := ""
	err = eachToken(path, data, func(_, secret string) {
		if first == "" {
			first = secret
		}
	})
	return first, err
}

func (t *Tokens) load() {
	data, err := t.file.Read()
	t.known, t.err = nil, err
	if err != nil {
		return
	}
	t.err = eachToken(t.file.Path, data, func(name, secret string) {
		t.known = append(t.known, token{name: name, hash: sha256.Sum256([]byte(secret))})
	})
	if t.err != nil {
		t.known = nil
	}
}

// eachToken calls do for each line with a token. Its errors never contain any part of a token.
func eachToken(path string, data []byte, do func(name, secret string)) error {
	seen := map[string]int{}
	number := 0
	for line := range bytes.Lines(data) {
		number++
		text := strings.TrimSpace(string(line))
		if text == "" || text[0] == '#' {
			continue
		}
		name, secret, named := strings.Cut(text, ":")
		if !named {
			name, secret = "", text
		}
		secret = strings.TrimSpace(secret)
		switch {
		case named && (name == "" || len(name) > maxTokenNameBytes || strings.Trim(name, nameCharacters) != ""):
			return fmt.Errorf("the token file %s, line %d: the name before the colon: expected 1 to %d letters, digits and ._@-", path, number, maxTokenNameBytes)
		case len(secret) < MinTokenBytes || len(secret) > MaxTokenBytes:
			return fmt.Errorf("the token file %s, line %d: the token has %d bytes: expected %d to %d; openssl rand -base64 32 makes one",
				path, number, len(secret), MinTokenBytes, MaxTokenBytes)
		case strings.Trim(strings.TrimRight(secret, "="), tokenCharacters) != "":
			return fmt.Errorf("the token file %s, line %d: the token has characters that a header does not permit: expected letters, digits and -._~+/, and = at its end",
				path, number)
		case seen[secret] > 0:
			return fmt.Errorf("the token file %s: lines %d and %d have the same token: remove one", path, seen[secret], number)
		case len(seen) == maxTokens:
			return fmt.Errorf("the token file %s has more than %d tokens", path, maxTokens)
		}
		seen[secret] = number
		do(name, secret)
	}
	if len(seen) == 0 {
		return fmt.Errorf("the token file %s has no token in it: expected one a line, TOKEN or NAME:TOKEN; openssl rand -base64 32 makes one", path)
	}
	return nil
}

// Permitted characters. Those of tokens are from RFC 6750, section 2.1 (b64token).
const (
	alphanumeric    = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	tokenCharacters = alphanumeric + "-._~+/"
	nameCharacters  = alphanumeric + "-._@"
)

// errNoToken is for a request without a token.
var errNoToken = errors.New("this admin port requires a token: send \"Authorization: Bearer TOKEN\", with xebec --token-file FILE or XEBEC_TOKEN_FILE")

// errWrongToken does not reveal what is wrong with the token.
var errWrongToken = errors.New("the token is not, or is no longer, one of this gateway's: see --token-file")

// errNoTokens hides the file's problem from callers; the log has it.
var errNoTokens = errors.New("all requests are refused because the gateway's token file cannot be used: see the gateway's log")

// Check checks the value of an Authorization header. It returns the name of the token, which may be empty, or the error
// for the caller. detail is for the log, and nil if there is nothing to add.
func (t *Tokens) Check(authorization string) (name string, refusal, detail error) {
	secret, ok := bearer(authorization)
	hash := sha256.Sum256([]byte(secret))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file.Changed() {
		t.load()
	}
	if t.err != nil {
		return "", errNoTokens, t.err
	}
	if !ok {
		return "", errNoToken, nil
	}
	found := 0
	for i := range t.known {
		// Compare all of them, so that the duration does not reveal which one matched.
		same := subtle.ConstantTimeCompare(hash[:], t.known[i].hash[:])
		found = subtle.ConstantTimeSelect(same, i+1, found)
	}
	if found == 0 {
		return "", errWrongToken, nil
	}
	return t.known[found-1].name, nil, nil
}

// bearer returns the token from "Bearer TOKEN". The scheme is not case-sensitive (RFC 9110, section 11.1).
func bearer(authorization string) (string, bool) {
	scheme, secret, ok := strings.Cut(authorization, " ")
	secret = strings.TrimSpace(secret)
	return secret, ok && strings.EqualFold(scheme, "Bearer") && secret != "" && len(secret) <= MaxTokenBytes
}

// refuse counts a refused request. It returns whether to log it, how many were refused since the last log line, and how
// many in total.
func (t *Tokens) refuse() (log bool, since, total uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused++
	t.unlogged++
	since = t.unlogged
	now := t.now()
	if log = t.loggedAt.IsZero() || now.Sub(t.loggedAt) >= refusalLogInterval; log {
		t.loggedAt, t.unlogged = now, 0
	}
	return log, since, t.refused
}
