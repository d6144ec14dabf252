package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestTooFewFileDescriptorsAreAnErrorWithBothNumbers(t *testing.T) {
	cfg := NewConfig()
	cfg.MaxClients, cfg.MaxPins, cfg.MaxLanes = 1000, 100, 20
	const needed = 1000 + 100 + maxLogins + 3*20 + ownFiles
	if err := cfg.checkFiles(needed); err != nil {
		t.Errorf("with as many as are needed: %v", err)
	}
	err := cfg.checkFiles(needed - 1)
	for _, want := range []string{"max-clients", "1000 clients", "176 connections", "1304", "1303"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

// The soft limit is raised as far as it may be; beyond the hard limit the proxy does not start.
func TestProxyDoesNotStartWithTooFewFileDescriptors(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	start := func(limits, clients string) string {
		script := limits + ` && exec -a lockproxy "$0" --listen nowhere.invalid:0 --max-pins 10 --max-lanes 10 --max-clients ` + clients
		out, _ := exec.Command("bash", "-c", script, self).CombinedOutput() // it fails in any case: it cannot listen there
		return string(out)
	}
	if got := start("ulimit -n 400", "1000"); !strings.Contains(got, "1000 clients") || !strings.Contains(got, "the limit is 400") {
		t.Errorf("with a hard limit of 400: %s", got)
	}
	if got := start("ulimit -Sn 400 && ulimit -Hn 2000", "1000"); strings.Contains(got, "descriptors") || !strings.Contains(got, "listen") {
		t.Errorf("with a soft limit of 400: %s", got)
	}
}
