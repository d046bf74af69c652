package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
)

const (
	// waitsWithin is far more than a container needs to import scikit-learn on a busy machine.
	waitsWithin = 3 * time.Minute
	// countedFor is longer than the 5 s after which the gateway counts the processes that wait again.
	countedFor = 6 * time.Second
	// marksLine begins the line that printedProgram prints.
	marksLine = "marks "
)

// printedProgram is the demo's program, extended to print when it began and when it had loaded.
const printedProgram = `import time
began = time.time_ns()
import joblib
import xebec

classifier = joblib.load("digits.joblib")
print("` + marksLine + `", began, time.time_ns(), flush=True)
xebec.serve(lambda batch: classifier.predict(batch))
`

// contained returns the models of part e. The program that prints is in folder.
func contained(cfg config, folder string, digit []byte) ([]sleepy, error) {
	svm, printing := filepath.Join(cfg.demo, demoModel), filepath.Join(folder, "printing")
	parameters, err := os.ReadFile(filepath.Join(svm, "digits.joblib"))
	if err != nil {
		return nil, fmt.Errorf("%w: `make demo` trains it", err)
	}
	// The container's user is another one, and it enters the folder through the engine's mount.
	if err := errors.Join(os.Mkdir(printing, 0o755), os.WriteFile(filepath.Join(printing, "digits.joblib"), parameters, 0o644),
		os.WriteFile(filepath.Join(printing, "model.py"), []byte(printedProgram), 0o644)); err != nil {
		return nil, err
	}
	image := func(dir, preload string) string {
		return preload + coldManifest("dir: %q\nrun: {image: %q, env: {OMP_NUM_THREADS: \"1\"}}\n", dir, cfg.image)
	}
	engine, imports := []string{"--docker", cfg.docker}, "preload: "+preload+"\n"
	models := []sleepy{
		{name: "scikit-learn in a container, another waits with its imports", manifest: image(svm, imports), maxP50: maxWarmP50, waits: true},
		{name: "the same, and its program tells when", manifest: image(printing, imports), waits: true, prints: true},
		{name: "scikit-learn in a container", manifest: image(svm, "")},
		{name: "the same, and its program tells when", manifest: image(printing, ""), prints: true},
		{name: "numpy alone in a container", manifest: image(cfg.waiting(), "")},
	}
	for i := range models {
		m := &models[i]
		m.starts, m.body, m.args, m.optional = cfg.containers, digit, engine, true
		if m.prints {
			m.starts = max(2, cfg.containers/4)
		}
	}
	return models, nil
}

func measureContainers(ctx context.Context, cfg config, report *Report) error {
	digit, err := digitBody(cfg)
	if err != nil {
		return err
	}
	folder, err := gateway.NewFolder()
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := os.Chmod(folder, 0o755); err != nil {
		return err
	}
	models, err := contained(cfg, folder, digit)
	if err != nil {
		return err
	}
	return report.measureAll(ctx, cfg, models)
}
