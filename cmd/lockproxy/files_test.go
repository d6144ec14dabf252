package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The soft limit is raised as far as it may be; beyond the hard limit the proxy does not start.
func TestProxyDoesNotStartWithTooFewFileDescriptors(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	start := func(limits, clients string) string {
		script := limits + ` && exec -a lockproxy "$0" --listen nowhere.invalid:0 --max-pins 10 --max-clients ` + clients
		out, _ := exec.Command("bash", "-c", script, self).CombinedOutput() // it fails in any case: it cannot listen there
		return string(out)
	}
	const needed = 1000 + 10 + maxLogins + 3*maxLanes + ownFiles
	got := start(fmt.Sprint("ulimit -n ", needed-1), "1000")
	for _, want := range []string{"max-clients: 1000 clients", fmt.Sprint(10+maxLogins+3*maxLanes, " connections"), fmt.Sprint("need ", needed), fmt.Sprint("the limit is ", needed-1)} {
		if !strings.Contains(got, want) {
			t.Errorf("with a hard limit that is one too low: no %q in %s", want, got)
		}
	}
	if got := start(fmt.Sprint("ulimit -Sn 400 && ulimit -Hn ", needed), "1000"); strings.Contains(got, "descriptors") || !strings.Contains(got, "listen") {
		t.Errorf("with a soft limit of 400: %s", got)
	}
}
