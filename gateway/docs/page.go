package docs

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
)

var (
	//go:embed page.html
	document string
	//go:embed page.css
	style string
	//go:embed page.js
	script string
)

// Operation is a route of the HTTP API.
type Operation struct {
	Method  string `json:"method"`
	Path    string `json:"path"`
	Summary string `json:"summary"`
	// Functions and Admin are the ports that have it.
	Functions bool `json:"functions"`
	Admin     bool `json:"admin"`
}

// Page returns the page, and the policy that the header Content-Security-Policy must have for it. openAPI is the description of the API.
func Page(openAPI []byte) (page []byte, policy string) {
	routes, err := json.Marshal(Operations(openAPI)) // it escapes <, so it cannot end the script
	if err != nil {
		panic(err) // strings and booleans always have a form in JSON
	}
	code := strings.Replace(script, "/*ROUTES*/[]", string(routes), 1)
	text := strings.NewReplacer("/*STYLE*/", style, "/*SCRIPT*/", code).Replace(document)
	return []byte(text), "default-src 'none'; style-src " + hash(style) + "; script-src " + hash(code) +
		"; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

var (
	pathLine    = regexp.MustCompile(`^  (/\S*):$`)
	methodLine  = regexp.MustCompile(`^    (get|post|put|delete|patch):$`)
	summaryLine = regexp.MustCompile(`^      summary: (.*)$`)
	serverLine  = regexp.MustCompile(`^      - \{url: "http://127\.0\.0\.1:(1337|1338)"`)
)

// Operations reads the routes of a description in the layout of api/spec/openapi.yaml, line by line: a test compares them with what a
// parser of YAML reads, and the program needs none for this.
func Operations(openAPI []byte) (all []Operation) {
	_, text, _ := bytes.Cut(openAPI, []byte("\npaths:\n"))
	path, first := "", 0 // the first operation of the path
	ports := map[string]bool{}
	end := func() {
		for i := first; i < len(all); i++ {
			all[i].Functions, all[i].Admin = ports["1337"] || len(ports) == 0, ports["1338"]
		}
		first = len(all)
		clear(ports)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if line != "" && line[0] != ' ' {
			break // components:
		}
		if m := pathLine.FindStringSubmatch(line); m != nil {
			end()
			path = m[1]
		} else if m := methodLine.FindStringSubmatch(line); m != nil {
			all = append(all, Operation{Method: strings.ToUpper(m[1]), Path: path})
		} else if m := summaryLine.FindStringSubmatch(line); m != nil && len(all) > first {
			all[len(all)-1].Summary = strings.Trim(m[1], `"`)
		} else if m := serverLine.FindStringSubmatch(line); m != nil {
			ports[m[1]] = true
		}
	}
	end()
	return all
}
