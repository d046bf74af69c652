package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/worker/runtimes"
)

// dropOptions are the flags of deploy for a file that is no model directory yet.
type dropOptions struct {
	name, into   string
	requirements string
	key, other   string
	inputs       []string
	allowPickle  bool
	dryRun       bool
}

func (o *dropOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.name, "name", "", "of a FILE: the model's name (default the file's)")
	f.StringVar(&o.into, "into", "xebec-models", "of a FILE: the directory in which its model directory NAME/VERSION is made")
	f.BoolVar(&o.allowPickle, "allow-pickle", false, "of a FILE: load it although it is a pickle, which can run any code of whoever wrote it")
	f.StringArrayVar(&o.inputs, "input", nil, "of a FILE that does not say its inputs: type and shape of one query, such as float32[3,224,224] or ids=int64[-1]; may be repeated, in order")
	f.StringVar(&o.key, "key", "", "of a table: the column that queries give (default the first)")
	f.StringVar(&o.other, "default", "", "of a table: the key whose row answers for keys that have none (default: they are refused)")
	f.StringVar(&o.requirements, "requirements", "", "of a FILE: a requirements.txt that goes into its model directory")
}

// isModelDir reports whether deploy takes a path as it is: a model directory, or a directory that is nothing else either.
func isModelDir(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return err != nil // the error of a path that does not exist is that of a model directory
	}
	if _, err := os.Stat(filepath.Join(path, manifest.ModelFile)); err == nil {
		return true
	}
	_, err = runtimes.Recognise(path)
	return err != nil
}

// drop makes a model directory of a file, and returns it. say gets what people should read.
//
// undo removes what drop has made, which is what a dry run and a file that is refused leave. It is not nil.
func (c *cli) drop(ctx context.Context, path string, o dropOptions, say io.Writer) (dir string, undo func(), err error) {
	undo = func() {}
	found, err := runtimes.Recognise(path)
	if err != nil {
		return "", undo, err
	}
	if err := c.judgePickle(path, found, o); err != nil {
		return "", undo, err
	}
	if err := o.table(found); err != nil {
		return "", undo, err
	}
	d := &dropped{path: path, found: found, options: o}
	if err := d.read(); err != nil {
		return "", undo, err
	}
	home := filepath.Join(o.into, d.name)
	if err := c.judgeName(ctx, d, home, say); err != nil {
		return "", undo, err
	}
	unmake, err := makeAll(home)
	if err != nil {
		return "", undo, err
	}
	defer func() {
		_ = os.RemoveAll(d.dir) // it was renamed, or is of no use
		if err != nil {
			unmake()
		}
	}()
	if d.dir, err = os.MkdirTemp(home, ".new-"); err != nil {
		return "", undo, err
	}
	if err := d.fill(); err != nil {
		return "", undo, err
	}
	fmt.Fprintf(say, "%s is %s\n", c.clean(path), found.Format)
	about, err := c.inspect(ctx, d, say)
	if err != nil {
		return "", undo, err
	}
	for _, line := range signatureLines(about) {
		fmt.Fprintln(say, "  "+c.clean(line))
	}
	dir, made, err := c.place(ctx, d, about, home)
	if err != nil {
		return "", undo, err
	}
	if !made {
		return dir, undo, nil
	}
	if !o.dryRun {
		fmt.Fprintf(say, "made %s: it is an ordinary model directory, which you can change, or deploy elsewhere\n", c.clean(dir))
	}
	return dir, func() {
		_ = os.RemoveAll(dir)
		unmake()
	}, nil
}

// makeAll makes a directory and those above it, and returns what removes those that were not there and are empty.
func makeAll(dir string) (unmake func(), err error) {
	var missing []string
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, at)
	}
	unmake = func() {
		for _, at := range missing {
			_ = os.Remove(at)
		}
	}
	return unmake, os.MkdirAll(dir, 0o755)
}

// judgeName refuses a name that was taken from the file's if a model has it that was made of something else: the file would become its next
// version. A caller that gives the name means that.
func (c *cli) judgeName(ctx context.Context, d *dropped, home string, say io.Writer) error {
	models, err := c.modelsIfAny(ctx, d.name)
	if err != nil {
		return err
	}
	var before *api.ModelSpec
	for i := range models {
		if is := &models[i].Spec; before == nil || api.CompareVersions(is.Version, before.Version) > 0 {
			before = is
		}
	}
	newest, err := newestVersion(home)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if version := strconv.Itoa(newest); newest > 0 && (before == nil || api.CompareVersions(version, before.Version) > 0) {
		set, err := manifest.LoadModelDir(filepath.Join(home, version))
		if err != nil {
			return err
		}
		before = &set.Models[0]
	}
	if before == nil {
		return nil
	}
	was, is := droppedFile(before), d.file
	if was == is {
		return nil
	}
	switch was {
	case "":
		was = "the model directory " + before.Dir
	case droppedDir:
		was = "a directory"
	}
	name := filepath.Base(d.path)
	if d.options.name == "" {
		return fmt.Errorf("%s would be the next version of model %s and take its place, and %s is %s: give it a name of its own (--name %s), or --name %s if it is to take the place",
			d.path, d.name, before.ID(), was, nameOf(name), d.name)
	}
	fmt.Fprintf(say, "%s is %s; %s is its next version\n", before.ID(), c.clean(was), c.clean(name))
	return nil
}

// droppedDir is what a directory that was dropped is called in its model directory.
const droppedDir = "model"

// droppedFile is the file of which deploy has made a model directory, or droppedDir; empty: it has not made it.
func droppedFile(m *api.ModelSpec) string {
	if cmd := m.Run.Command; len(cmd) > 2 && (cmd[0] == "python" && cmd[1] == "model.py" || cmd[0] == "xebec" && cmd[1] == "table") {
		return cmd[2]
	}
	return ""
}

// modelsIfAny are the versions of a model, none if there is no such model.
func (c *cli) modelsIfAny(ctx context.Context, name string) ([]api.ModelStatus, error) {
	models, err := c.models(ctx, name)
	var refused *remoteError
	if errors.As(err, &refused) && refused.Code == api.NotFound.String() {
		return nil, nil
	}
	return models, err
}

// judgePickle refuses a file that can run code when it is loaded, unless the caller has said that it may.
func (c *cli) judgePickle(path string, found *runtimes.Found, o dropOptions) error {
	switch {
	case found.Pickle == "":
		return nil
	case o.allowPickle:
		fmt.Fprintf(c.err, "warning: %s can run any code of whoever wrote it (%s). It will run isolated, and with every query's data\n", c.clean(path), found.Pickle)
		found.Flags = append(found.Flags, "--allow-pickle")
		return nil
	}
	return fmt.Errorf("%s can run any code of whoever wrote it when it is loaded: %s. If you trust the writer, give --allow-pickle; ONNX, the native files of XGBoost and LightGBM, torch.export and safetensors run none",
		path, found.Pickle)
}

// table passes the flags of a table on to its runtime.
func (o *dropOptions) table(found *runtimes.Found) error {
	for _, flag := range []struct{ name, value string }{{"--key", o.key}, {"--default", o.other}} {
		switch {
		case flag.value == "":
		case found.Name != runtimes.Table:
			return usagef("%s is for tables: the file is %s", flag.name, found.Format)
		default:
			found.Flags = append(found.Flags, flag.name+"="+flag.value)
		}
	}
	return nil
}

// dropped is a file on its way into a model directory.
type dropped struct {
	path    string
	found   *runtimes.Found
	options dropOptions
	name    string
	version string
	inputs  []runtimes.Tensor // as flags say
	file    string            // its name in the model directory
	dir     string            // the model directory, under a temporary name
}

// read checks the flags.
func (d *dropped) read() error {
	abs, err := filepath.Abs(d.path)
	if err != nil {
		return err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return err
	}
	base := filepath.Base(abs)
	d.file = base
	if info.IsDir() {
		d.file = droppedDir
	}
	if d.name = d.options.name; d.name == "" {
		d.name = nameOf(strings.TrimSuffix(base, filepath.Ext(base)))
	}
	if err := api.CheckName("model", d.name); err != nil {
		return usagef("%w: give one with --name", err)
	}
	for i, text := range d.options.inputs {
		name := "input"
		if len(d.options.inputs) > 1 {
			name = fmt.Sprintf("input_%d", i)
		}
		input, err := runtimes.ParseTensor(text, name)
		if err != nil {
			return usagef("--input %w", err)
		}
		d.inputs = append(d.inputs, input)
	}
	return nil
}

// nameOf makes a name of a model of that of a file.
func nameOf(file string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(file))
	name = strings.Trim(name, "-")
	return strings.TrimRight(name[:min(len(name), api.MaxNameBytes)], "-")
}

// fill puts the file, its runtime and its requirements into the directory.
func (d *dropped) fill() error {
	if err := os.Chmod(d.dir, 0o755); err != nil { // replicas may run as users of their own
		return err
	}
	if err := copyTree(d.path, filepath.Join(d.dir, d.file)); err != nil {
		return err
	}
	for _, beside := range d.found.Beside {
		if err := copyTree(filepath.Join(filepath.Dir(d.path), beside), filepath.Join(d.dir, beside)); err != nil {
			return err
		}
	}
	requirements := d.options.requirements
	if requirements == "" && d.found.Requirements != "" {
		requirements = filepath.Join(d.path, d.found.Requirements)
	}
	if requirements != "" {
		if err := copyTree(requirements, filepath.Join(d.dir, "requirements.txt")); err != nil {
			return err
		}
	}
	if d.found.Name == runtimes.Table {
		return nil
	}
	return os.WriteFile(filepath.Join(d.dir, "model.py"), d.found.Source(), 0o644)
}

// command is what serves the model.
func (d *dropped) command() []string {
	if d.found.Name == runtimes.Table {
		return append([]string{"xebec", "table", d.file}, d.found.Flags...)
	}
	return append([]string{"python", "model.py", d.file}, d.found.Flags...)
}

// inspect has the gateway load the model and say its inputs and outputs.
func (c *cli) inspect(ctx context.Context, d *dropped, say io.Writer) (*runtimes.Description, error) {
	dir, err := filepath.Abs(d.dir)
	if err != nil {
		return nil, err
	}
	command := append(d.command(), "--describe")
	for _, input := range d.inputs {
		text, err := json.Marshal(input)
		if err != nil {
			return nil, err
		}
		command = append(command, "--input", string(text))
	}
	output, stderr, failed := c.runInspection(ctx, dir, command)
	about, err := runtimes.ParseDescription(output)
	if err == nil && about.Missing != "" {
		requirements := filepath.Join(dir, "requirements.txt")
		text := strings.Join(about.Requirements, "\n") + "\n"
		if _, there := os.Lstat(requirements); there == nil {
			return nil, fmt.Errorf("the model needs the package %s, and its %s does not ask for it: it needs %s", about.Missing, "requirements.txt", strings.Join(about.Requirements, " "))
		}
		fmt.Fprintf(say, "the gateway's Python has no package %s: an environment with %s is built\n", c.clean(about.Missing), c.clean(strings.Join(about.Requirements, ", ")))
		if err := os.WriteFile(requirements, []byte(text), 0o644); err != nil {
			return nil, err
		}
		return c.inspect(ctx, d, say)
	}
	switch {
	case failed != nil:
		for _, line := range without(stderr, failed.Error()) {
			fmt.Fprintln(c.err, c.clean(line))
		}
		return nil, fmt.Errorf("%s cannot be served: %w", d.path, failed)
	case err != nil:
		return nil, fmt.Errorf("%s cannot be served: %w", d.path, err)
	}
	return about, nil
}

// maxInspectLines bounds the stderr of an inspection that is shown if it fails.
const maxInspectLines = 20

// without returns the lines that an error does not quote.
func without(lines []string, quoted string) []string {
	return slices.DeleteFunc(lines, func(line string) bool {
		text := strings.TrimSpace(strings.TrimPrefix(line, "environment: "))
		return text != "" && strings.Contains(quoted, text)
	})
}

// runInspection runs a command in a directory by the gateway. It returns the last line of its stdout, and the last lines of its stderr that
// were not shown while it ran.
func (c *cli) runInspection(ctx context.Context, dir string, command []string) (output []byte, stderr []string, failed error) {
	body, err := json.Marshal(map[string]any{"dir": dir, "command": command})
	if err != nil {
		return nil, nil, err
	}
	res, err := c.send(ctx, http.MethodPost, "/v1/inspect", "application/json", "application/x-ndjson", body)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	p := progress{c: c, began: c.now()}
	scan := bufio.NewScanner(res.Body)
	scan.Buffer(nil, maxLogLineBytes)
	for scan.Scan() {
		var line struct {
			api.LogLine
			Failed *api.ErrorInfo `json:"error"`
		}
		if err := json.Unmarshal(scan.Bytes(), &line); err != nil {
			return nil, stderr, c.notUnderstood(err)
		}
		switch {
		case line.Failed != nil:
			return output, stderr, &remoteError{ErrorInfo: *line.Failed}
		case line.Stream == "stdout":
			output = []byte(line.Text)
		default:
			if !p.report(c.clean(line.Text)) {
				stderr = append(stderr[max(0, len(stderr)-maxInspectLines+1):], line.Text)
			}
		}
	}
	if ctx.Err() != nil {
		return nil, stderr, ctx.Err()
	}
	if err := scan.Err(); err != nil {
		return nil, stderr, fmt.Errorf("the gateway's answer was cut off: %w", err)
	}
	return output, stderr, nil
}

// signatureLines shows inputs, outputs and notes.
func signatureLines(about *runtimes.Description) (lines []string) {
	const most = 16
	show := func(what string, tensors []runtimes.Tensor) {
		for i, t := range tensors {
			if i == most {
				lines = append(lines, fmt.Sprintf("%s … %d more", what, len(tensors)-most))
				break
			}
			lines = append(lines, fmt.Sprintf("%s %s: %s%s", what, t.Name, t.DType, strings.ReplaceAll(fmt.Sprint(t.Shape), " ", ",")))
		}
	}
	show("input", about.Inputs)
	show("output", about.Outputs)
	return append(lines, about.Notes...)
}

// place writes the manifest and gives the directory its version. If the newest version has the same files already, that
// is the model directory, and made is false.
func (c *cli) place(ctx context.Context, d *dropped, about *runtimes.Description, home string) (dir string, made bool, err error) {
	newest, err := newestVersion(home)
	if err != nil {
		return "", false, err
	}
	if newest > 0 {
		d.version, dir = strconv.Itoa(newest), filepath.Join(home, strconv.Itoa(newest))
		if err := d.declare(about); err != nil {
			return "", false, err
		}
		if same, err := sameTree(dir, d.dir); same || err != nil {
			return dir, false, err
		}
	}
	models, err := c.modelsIfAny(ctx, d.name)
	if err != nil {
		return "", false, err
	}
	for _, m := range models { // of another directory
		if n, err := strconv.Atoi(m.Spec.Version); err == nil {
			newest = max(newest, n)
		}
	}
	d.version = strconv.Itoa(newest + 1)
	if err := d.declare(about); err != nil {
		return "", false, err
	}
	dir = filepath.Join(home, d.version)
	return dir, true, os.Rename(d.dir, dir)
}

// newestVersion is the highest number that a directory in home has; 0: there is none.
func newestVersion(home string) (newest int, err error) {
	entries, err := os.ReadDir(home)
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && e.IsDir() {
			newest = max(newest, n)
		}
	}
	return newest, err
}

// declare writes the manifest, and checks it.
func (d *dropped) declare(about *runtimes.Description) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Made by `xebec deploy` of %q: %s.\nname: %s\nversion: %q\n", filepath.Base(d.path), d.found.Format, d.name, d.version)
	for _, s := range []struct {
		field   string
		tensors []runtimes.Tensor
	}{{"inputs", about.Inputs}, {"outputs", about.Outputs}} {
		b.WriteString(s.field + ":\n")
		for _, t := range s.tensors {
			media := ""
			if t.Media != "" {
				media = fmt.Sprintf(", media: %s", quoted(t.Media))
			}
			fmt.Fprintf(&b, "  - {name: %s, dtype: %s, shape: %s%s}\n", quoted(t.Name), quoted(t.DType), strings.ReplaceAll(fmt.Sprint(t.Shape), " ", ", "), media)
		}
	}
	words := d.command()
	for i, word := range words {
		words[i] = quoted(word)
	}
	fmt.Fprintf(&b, "run: {command: [%s]}\n", strings.Join(words, ", "))
	if err := os.WriteFile(filepath.Join(d.dir, manifest.ModelFile), b.Bytes(), 0o644); err != nil {
		return err
	}
	if _, err := manifest.LoadModelDir(d.dir); err != nil {
		return fmt.Errorf("%s cannot be declared: %w", d.path, err)
	}
	return nil
}

// quoted is text as YAML reads it. A word of harmless characters needs no quotes.
func quoted(text string) string {
	plain := text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("_./", r)
	})
	if plain && !slices.Contains([]string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}, strings.ToLower(text)) {
		return text
	}
	return string(must(json.Marshal(text)))
}

func must(text []byte, err error) []byte {
	if err != nil {
		panic(err) // a string can always be encoded
	}
	return text
}
