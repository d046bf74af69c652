package xebec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/itchyny/gojq"
)

// The numbers of README.md and bench/RESULTS.md are read from result files. A comment above a table or a paragraph says from where:
//
//	<!-- figures
//	results/2026-11-26-path.json
//	40 B JSON, 64 clients = load("40 B JSON, 64") | cpu, p50
//	-->
//
// A line with a file's path, relative to the page, begins its figures. Each other line has the first cell of a row (its beginning, if it ends
// with "…"; "text" for a paragraph) and a jq expression whose results are the row's numbers, from left to right. The functions that the
// expressions share are in figuresModule. Not figures are:
//
//   - the first column of a table, which says what was measured; the column "the paper", and what is in brackets after "the paper:";
//   - headings, fenced blocks, inline code, targets of links, the numbers of figures and sections, and digits that follow a letter, a slash,
//     a colon or a hyphen (P99, HTTP/1.1);
//   - the phrases of a section's comment <!-- settings: 20 ms; 5 × the capacity -->. They are targets and settings, not results.
const figuresModule = "bench/figures.jq"

// origin is where the numbers of a row or a paragraph come from.
type origin struct {
	line             int // of the comment's line
	file, expression string
	used             bool
}

// figureRow is a row or paragraph of a page, with the numbers in it that are figures.
type figureRow struct {
	line    int
	key     string
	printed []string
	from    map[string]*origin // of the comment above; nil without one
}

var (
	figureNumber = regexp.MustCompile(`(^|[^\pL\pN_./:-])([−+]?\d[\d,]*(?:\.\d+)?)`)
	notFigures   = regexp.MustCompile("`[^`]*`" + `|\]\([^)]*\)|\(the paper:[^)]*\)|\b([Ff]igures?|[Ss]ection) \d+(\.\d+)?((,| to| and) \d+)*`)
)

// figureRows reads a page. Problems are errors of its comments.
func figureRows(page, text string) (rows []figureRow, problems []string) {
	_, prose := cut(page, text)
	settings := map[string]bool{} // phrase to whether it occurred
	var from map[string]*origin
	var all []*origin
	var open *figureRow // the paragraph
	paper, inTable := -1, false
	endOfSection := func(line int) {
		for phrase, used := range settings {
			if !used {
				problems = append(problems, fmt.Sprintf("%s:%d: the section before has no text %q, which its settings name", page, line, phrase))
			}
		}
		clear(settings)
	}
	numbers := func(s string) (out []string) {
		s = notFigures.ReplaceAllString(s, " ")
		longestFirst := func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }
		for _, phrase := range slices.SortedFunc(maps.Keys(settings), longestFirst) {
			if strings.Contains(s, phrase) {
				settings[phrase] = true
				s = strings.ReplaceAll(s, phrase, " ")
			}
		}
		for _, m := range figureNumber.FindAllStringSubmatch(s, -1) {
			out = append(out, strings.TrimRight(m[2], ","))
		}
		return out
	}
	endOfBlock := func() {
		if open != nil {
			open.printed = numbers(open.key)
			open.key = "text"
			rows = append(rows, *open)
		}
		if open != nil || inTable {
			from = nil
		}
		open, inTable, paper = nil, false, -1
	}
	inComment, file := false, ""
	for i, line := range prose {
		switch {
		case inComment && line == "-->":
			inComment = false
		case inComment && strings.HasPrefix(line, "results/") || inComment && strings.HasPrefix(line, "bench/results/"):
			file = filepath.Join(filepath.Dir(page), line)
		case inComment:
			key, expression, ok := strings.Cut(line, " = ")
			if !ok || file == "" {
				problems = append(problems, fmt.Sprintf("%s:%d: expected a result file's path or ROW = EXPRESSION below one, got %q", page, i+1, line))
				continue
			}
			s := &origin{line: i + 1, file: file, expression: expression}
			from[key] = s
			all = append(all, s)
		case line == "<!-- figures":
			endOfBlock()
			inComment, file, from = true, "", map[string]*origin{}
		case strings.HasPrefix(line, "<!-- settings: "):
			for phrase := range strings.SplitSeq(strings.TrimSuffix(strings.TrimPrefix(line, "<!-- settings: "), " -->"), "; ") {
				settings[phrase] = false
			}
		case strings.HasPrefix(line, "<!--"):
		case strings.HasPrefix(line, "#"):
			endOfBlock()
			if strings.HasPrefix(line, "## ") {
				endOfSection(i + 1)
			}
		case line == "":
			endOfBlock()
		case strings.HasPrefix(line, "|"):
			cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|")
			for c := range cells {
				cells[c] = strings.TrimSpace(cells[c])
			}
			switch {
			case !inTable:
				inTable, paper = true, slices.Index(cells, "the paper")
			case !strings.HasPrefix(line, "|--"):
				row := figureRow{line: i + 1, key: cells[0], from: from}
				for column, cell := range cells {
					if column != 0 && column != paper {
						row.printed = append(row.printed, numbers(cell)...)
					}
				}
				rows = append(rows, row)
			}
		default:
			if open == nil {
				open = &figureRow{line: i + 1, from: from}
			}
			open.key += line + "\n"
		}
	}
	endOfBlock()
	endOfSection(len(prose))
	for r := range rows {
		if s := rows[r].origin(); s != nil {
			s.used = true
		}
	}
	for _, s := range all {
		if !s.used {
			problems = append(problems, fmt.Sprintf("%s:%d: the table or paragraph below has no such row", page, s.line))
		}
	}
	return rows, problems
}

func (r *figureRow) origin() *origin {
	if s := r.from[r.key]; s != nil {
		return s
	}
	for key, s := range r.from {
		if start, ok := strings.CutSuffix(key, "…"); ok && strings.HasPrefix(r.key, start) {
			return s
		}
	}
	return nil
}

// evaluate returns the numbers that a jq expression, with the definitions in module before it, finds in a JSON value.
func evaluate(module, expression string, value any) (out []float64, err error) {
	query, err := gojq.Parse(module + "\n" + expression)
	if err != nil {
		return nil, err
	}
	code, err := gojq.Compile(query)
	if err != nil {
		return nil, err
	}
	for iter := code.Run(value); ; {
		v, more := iter.Next()
		if !more {
			return out, nil
		}
		switch v := v.(type) {
		case error:
			return nil, v
		case int:
			out = append(out, float64(v))
		case float64:
			out = append(out, v)
		default:
			return nil, fmt.Errorf("result %d is %v, which is no number", len(out)+1, v)
		}
	}
}

// rounds reports whether the printed number is the value, rounded to as many places.
func rounds(printed string, value float64) bool {
	printed = strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(printed, ",", ""), "−", "-"), "+", "")
	want, err := strconv.ParseFloat(printed, 64)
	_, fraction, _ := strings.Cut(printed, ".")
	return err == nil && math.Abs(value-want) <= 0.5*math.Pow10(-len(fraction))+1e-9
}

// judgeRow returns what is wrong with the row's numbers, or "".
func judgeRow(r *figureRow, module string, load func(file string) (any, error)) string {
	s := r.origin()
	switch {
	case s == nil && len(r.printed) == 0:
		return ""
	case s == nil:
		return fmt.Sprintf("the numbers %s name no result file: a comment <!-- figures above must have a line %q, or one of settings the phrases that are no results",
			strings.Join(r.printed, " "), r.key+" = EXPRESSION")
	}
	value, err := load(s.file)
	if err != nil {
		return err.Error()
	}
	values, err := evaluate(module, s.expression, value)
	if err != nil {
		return fmt.Sprintf("%s: %s: %v", s.file, s.expression, err)
	}
	ok := len(values) == len(r.printed)
	for i := 0; ok && i < len(values); i++ {
		ok = rounds(r.printed[i], values[i])
	}
	if !ok {
		return fmt.Sprintf("%s has %s, rounded; the page has %s", s.file, strings.Trim(fmt.Sprintf("%.5g", values), "[]"), strings.Join(r.printed, " "))
	}
	return ""
}

// TestDocsFigures: each number of the front page and of the results is the value of the field that it names, rounded.
func TestDocsFigures(t *testing.T) {
	module := read(t, figuresModule)
	files := map[string]any{}
	load := func(file string) (any, error) {
		if value, ok := files[file]; ok {
			return value, nil
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var value any
		if err := json.Unmarshal(data, &value); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		files[file] = value
		return value, nil
	}
	checked := 0
	for _, page := range []string{readmePage, resultsPage} {
		rows, problems := figureRows(page, read(t, page))
		for _, p := range problems {
			t.Error(p)
		}
		for i := range rows {
			if problem := judgeRow(&rows[i], module, load); problem != "" {
				t.Errorf("%s:%d: %s: %s", page, rows[i].line, rows[i].key, problem)
			}
			checked += len(rows[i].printed)
		}
	}
	if checked < 200 {
		t.Errorf("only %d numbers were checked, expected at least 200: were the tables of results found?", checked)
	}
}

// TestDocsFiguresFail: what TestDocsFigures uses detects what it should.
func TestDocsFiguresFail(t *testing.T) {
	const page = `# Results
Text of HTTP/1.1, P99 and figure 7.
## A
<!-- settings: 20 ms; 5 × -->

<!-- figures
results/r.json
text = .a
-->
It takes 1.5 s of 20 ms ([report](x7.md)).

<!-- figures
results/r.json
row of 3 = .b | min, max
other… = .a * -100
-->
| what | a | the paper |
|---|---|---|
| row of 3 | 2 (1–3) at 5 × | 99 |
| other row | −150 % (the paper: 17) | |

Alone: 1,234 µs.
`
	value := map[string]any{"a": 1.5, "b": []any{1.0, 2.0, 3.0}}
	load := func(file string) (any, error) {
		if file != "results/r.json" {
			return nil, os.ErrNotExist
		}
		return value, nil
	}
	rows, problems := figureRows("p.md", page)
	var got []string
	for i := range rows {
		got = append(got, fmt.Sprintf("%s:%s:%v", rows[i].key, strings.Join(rows[i].printed, " "), judgeRow(&rows[i], "", load) == ""))
	}
	if want := []string{"text::true", "text:1.5:true", "row of 3:2 1 3:false", "other row:−150:true", "text:1,234:false"}; !slices.Equal(got, want) || problems != nil {
		t.Errorf("rows %q, want %q; problems %q", got, want, problems)
	}
	for name, wrong := range map[string]string{
		"settings that do not occur": strings.Replace(page, "5 ×;", "6 ×;", 1) + "<!-- settings: 7 s -->",
		"a row that does not exist":  strings.Replace(page, "row of 3 = ", "row of 4 = ", 1),
		"a line that is no source":   strings.Replace(page, "text = .a", "text: .a", 1),
	} {
		if _, problems := figureRows("p.md", wrong); len(problems) == 0 {
			t.Errorf("%s: no problem was found", name)
		}
	}
	for printed, want := range map[string]bool{"24": true, "23.7": true, "25": false, "−24": false, "23.6": false} {
		if got := rounds(printed, 23.7); got != want {
			t.Errorf("rounds(%s, 23.7) is %v, want %v", printed, got, want)
		}
	}
	for _, expression := range []string{".a |", ".missing", ".b", `error("x")`, "nothing"} {
		if got, err := evaluate("", expression, value); err == nil {
			t.Errorf("%s: got %v, want an error", expression, got)
		}
	}
}
