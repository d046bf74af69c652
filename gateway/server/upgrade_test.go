package server

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A program that is no gateway does not keep upgrades from ever being tried again: one that ends, one that never asks to take over, and
// one that somebody has thought better of.
func TestUpgradeToAProgramThatNeverAsks(t *testing.T) {
	var command []string
	ended := make(chan struct{}, 1)
	dir := t.TempDir()
	s, _, _ := alive(t, Config{DataDir: dir, StartSuccessor: func(string, *Canary) (int, func() error, error) {
		cmd := exec.Command(command[0], command[1:]...)
		err := cmd.Start()
		if err != nil {
			return 0, nil, err
		}
		return cmd.Process.Pid, func() error { err := cmd.Wait(); ended <- struct{}{}; return err }, nil
	}})
	try := func(ctx context.Context, contact time.Duration, progress func(), program ...string) string {
		t.Helper()
		s.succession.mu.Lock()
		s.succession.contact, command = contact, program
		s.succession.mu.Unlock()
		_, err := Upgrade(ctx, dir, "", nil, func(UpgradeProgress) { progress() })
		<-ended
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Fatalf("the upgrade to %v ends with %v", program, err)
		}
		return err.Error()
	}
	none := func() {}
	if got := try(t.Context(), time.Hour, none, "sh", "-c", "exit 3"); !strings.Contains(got, "has ended before it asked to take over (exit status 3)") {
		t.Errorf("a program that ends: %s", got)
	}
	if got := try(t.Context(), time.Millisecond, none, "sleep", "1000"); !strings.Contains(got, "did not ask to take over within 1ms") {
		t.Errorf("a program that hangs: %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if got := try(ctx, time.Hour, cancel, "sleep", "1000"); !strings.Contains(got, "the upgrade is called off") {
		t.Errorf("a command that is interrupted: %s", got)
	}
	until(t, "the interrupted upgrade to be over", func() bool {
		s.succession.mu.Lock()
		defer s.succession.mu.Unlock()
		return s.succession.started == nil
	})
}
