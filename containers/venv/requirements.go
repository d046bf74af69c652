package venv

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/xebec-serving/xebec/containers"
)

const (
	// maxTextBytes bounds a file of requirements, maxTexts how many name each other.
	maxTextBytes = 1 << 20 //xebec:limit a file of requirements
	maxTexts     = 64      //xebec:limit files that requirements name
	// maxWheelBytes bounds a wheel in the model's directory.
	maxWheelBytes = 4 << 30 //xebec:limit a wheel in a model's directory
)

// requirements is what an environment is to have.
type requirements struct {
	// files are to be beside the installer, by path; that with the name containers.RequirementsFile is the first.
	files map[string][]byte
	// wheels are files of the directory that requirements name, by path.
	wheels []string
	dir    string
	// project is the file that asks for them if it is no requirements file.
	project string
}

// readRequirements reads what a model's directory asks for; nil: nothing.
func readRequirements(dir string) (*requirements, error) {
	r := &requirements{files: map[string][]byte{}, dir: dir}
	text, err := readText(dir, containers.RequirementsFile)
	if err == nil {
		return r, r.add(containers.RequirementsFile, text)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	text, err = readText(dir, containers.ProjectFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var project struct {
		Project struct {
			Dependencies []string `toml:"dependencies"`
		} `toml:"project"`
	}
	if err := toml.Unmarshal(text, &project); err != nil {
		return nil, refused("%s: %v", filepath.Join(dir, containers.ProjectFile), err)
	}
	if len(project.Project.Dependencies) == 0 {
		return nil, nil
	}
	for _, d := range project.Project.Dependencies {
		if strings.HasPrefix(strings.TrimSpace(d), "-") || strings.ContainsAny(d, "\r\n") {
			return nil, refused("%s: project.dependencies has %q: expected a requirement, such as numpy>=2", filepath.Join(dir, containers.ProjectFile), d)
		}
	}
	r.project = filepath.Join(dir, containers.ProjectFile)
	return r, r.add(containers.RequirementsFile, []byte(strings.Join(project.Project.Dependencies, "\n")+"\n"))
}

func refused(format string, args ...any) error {
	return &containers.LaunchError{Message: fmt.Sprintf(format, args...), Err: os.ErrInvalid}
}

// readText reads a file below dir. Links that lead outside of it are not followed.
func readText(dir, name string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, refused("%s: is no file", filepath.Join(dir, name))
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTextBytes+1))
	if err == nil && len(text) > maxTextBytes {
		err = refused("%s: has more than %d bytes", filepath.Join(dir, name), maxTextBytes)
	}
	return text, err
}

// add adds a file, with those that its lines name.
func (r *requirements) add(name string, text []byte) error {
	if _, ok := r.files[name]; ok {
		return nil
	}
	if len(r.files) == maxTexts {
		return refused("%s: names more than %d other files", filepath.Join(r.dir, containers.RequirementsFile), maxTexts)
	}
	r.files[name] = text
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		where := fmt.Sprintf("%s:%d", filepath.Join(r.dir, name), i+1)
		option, value := split(line)
		var err error
		switch {
		case line == "" || line[0] == '#':
		case option == "-e" || option == "--editable":
			err = refused("%s: %s: an environment is made once and then not changed: name a package, or a wheel in this directory", where, option)
		case option == "-r" || option == "--requirement" || option == "-c" || option == "--constraint":
			err = r.include(where, path.Join(path.Dir(name), value), value)
		case option == "" && (strings.HasPrefix(line, ".") || strings.HasPrefix(line, "/") || strings.HasPrefix(line, "file:") || strings.HasSuffix(strings.Fields(line)[0], ".whl") && !strings.Contains(line, "://")):
			err = r.wheel(where, strings.Fields(line)[0])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// split takes an option from the front of a line: "-r other.txt", "--requirement=other.txt", "-rother.txt".
func split(line string) (option, value string) {
	if !strings.HasPrefix(line, "-") {
		return "", ""
	}
	line, _, _ = strings.Cut(line, " #")
	if i := strings.IndexAny(line, " \t="); i >= 0 {
		return line[:i], strings.TrimSpace(line[i+1:])
	}
	if !strings.HasPrefix(line, "--") && len(line) > 2 {
		return line[:2], line[2:]
	}
	return line, ""
}

func (r *requirements) include(where, name, value string) error {
	if !filepath.IsLocal(name) || strings.Contains(value, "://") {
		return refused("%s: %q: expected a file in the model's directory", where, value)
	}
	text, err := readText(r.dir, name)
	if err != nil {
		return refused("%s: %q cannot be read: %v", where, value, err)
	}
	return r.add(name, text)
}

// wheel notes a wheel of the model's directory. pip takes such a path as relative to where it runs, which is the top.
func (r *requirements) wheel(where, name string) error {
	clean := path.Clean(name)
	if !filepath.IsLocal(clean) || path.Ext(clean) != ".whl" {
		return refused("%s: %q: expected the name of a package, or a wheel (*.whl) in the model's directory", where, name)
	}
	r.wheels = append(r.wheels, clean)
	return nil
}

// copyWheel copies a wheel below dir to a writer.
func (r *requirements) copyWheel(name string, to io.Writer) error {
	root, err := os.OpenRoot(r.dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(name)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > maxWheelBytes {
		return refused("%s: expected a file of at most %d bytes", filepath.Join(r.dir, name), int64(maxWheelBytes))
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(to, io.LimitReader(f, maxWheelBytes))
	return err
}
