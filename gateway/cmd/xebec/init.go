package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
)

// The templates are model directories in which {{name}} stands for the model's name.
//
//go:embed templates
var templates embed.FS

// templateDocs says what each template is, in the order in which they are listed.
var templateDocs = []struct{ name, what string }{
	{"python", "numbers in, a number out; needs numpy"},
	{"sklearn", "a classifier, and the script that trains it; needs scikit-learn"},
	{"text", "text in, a number out"},
	{"stream", "answers in a stream, one word after the other"},
}

func templateNames() []string {
	names := make([]string, len(templateDocs))
	for i, t := range templateDocs {
		names[i] = t.name
	}
	return names
}

func (c *cli) initCommand() *cobra.Command {
	from := templateDocs[0].name
	var list strings.Builder
	for _, t := range templateDocs {
		fmt.Fprintf(&list, "  %-9s%s\n", t.name, t.what)
	}
	cmd := &cobra.Command{
		Use:   "init NAME",
		Short: "Make a model directory to begin with",
		Long: `Make the directory NAME with a model that runs, its xebec.yaml and a test, from a template:

` + list.String() + `
NAME may be a path; its last part is the model's name. Nothing is overwritten.`,
		Example: `  xebec init mean
  xebec init models/iris --from sklearn`,
		Args: exactly("NAME"),
		RunE: func(_ *cobra.Command, args []string) error { return c.init(args[0], from) },
	}
	cmd.Flags().StringVar(&from, "from", from, "template: "+strings.Join(templateNames(), ", "))
	completeFlag(cmd, "from", templateNames()...)
	return cmd
}

func (c *cli) init(dir, from string) error {
	files, err := fs.Sub(templates, "templates/"+from)
	if err == nil {
		_, err = fs.Stat(files, manifest.ModelFile)
	}
	if err != nil {
		return unknownKind("init --from", from, templateNames())
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	name := filepath.Base(path)
	if err := api.CheckName("model", name); err != nil {
		return usageError{err}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o777); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s exists: expected the name of a directory to be made", dir)
		}
		return err
	}
	if err := fs.WalkDir(files, ".", func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, file)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(path, file), []byte(strings.ReplaceAll(string(text), "{{name}}", name)), 0o666)
	}); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s is made. Next:\n", dir)
	if _, err := fs.Stat(files, "train.py"); err == nil {
		fmt.Fprintf(c.out, "  (cd %s && python train.py)\n", dir)
	}
	for _, next := range []struct{ command, what string }{{"xebec try", "its output for a first input"}, {"xebec dev", "serve it while you write it"}, {"pytest", "its test"}} {
		fmt.Fprintf(c.out, "  %-9s %s    # %s\n", next.command, dir, next.what)
	}
	return nil
}
