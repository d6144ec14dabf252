package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// deployments are the files that start the program in containers.
func deployments(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"../../examples/compose/*.yml", "../../packaging/kubernetes/*.yml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatal("no files", pattern, err)
		}
		all = append(all, found...)
	}
	return all
}

// walk calls visit for every map in the documents of a YAML file.
func walk(t *testing.T, file string, visit func(map[string]any)) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var step func(any)
	step = func(node any) {
		switch n := node.(type) {
		case map[string]any:
			visit(n)
			for _, child := range n {
				step(child)
			}
		case []any:
			for _, child := range n {
				step(child)
			}
		}
	}
	for dec := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var document any
		if err := dec.Decode(&document); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		step(document)
	}
}

func TestDeploymentsHaveValidSettings(t *testing.T) {
	for _, file := range deployments(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			found := 0
			set := func(name string, value any) {
				text, isText := value.(string)
				if !isText || !strings.HasPrefix(name, envPrefix+"_") {
					return
				}
				if strings.HasSuffix(name, "_PASSWORD_FILE") {
					text = writeFile(t, "secret")
				}
				t.Setenv(name, text)
				found++
			}
			walk(t, file, func(m map[string]any) {
				if name, ok := m["name"].(string); ok {
					set(name, m["value"])
				}
				for name, value := range m {
					set(name, value)
				}
			})
			if found == 0 {
				t.Fatal("no settings")
			}
			if _, err := load(nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// What stops the proxy waits for longer than its drain takes.
func TestDrainsEndBeforeTheProcessIsKilled(t *testing.T) {
	units := append(deployments(t), "../../packaging/lockproxy.service")
	patience := regexp.MustCompile(`(?m)^\s*(?:terminationGracePeriodSeconds: |stop_grace_period: |TimeoutStopSec=)(\d+)`)
	drain := regexp.MustCompile(`LOCKPROXY_DRAIN_(DELAY|TIMEOUT)(?:: |, value: )(\d+)s`)
	for _, file := range units {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		settings := NewConfig().Drain
		for _, m := range drain.FindAllSubmatch(text, -1) {
			seconds, _ := strconv.Atoi(string(m[2]))
			if d := time.Duration(seconds) * time.Second; string(m[1]) == "DELAY" {
				settings.Delay = d
			} else {
				settings.Timeout = d
			}
		}
		found := patience.FindSubmatch(text)
		if found == nil {
			t.Errorf("%s: it says nothing about the time to end", file)
			continue
		}
		if seconds, _ := strconv.Atoi(string(found[1])); time.Duration(seconds)*time.Second < settings.Delay+settings.Timeout+5*time.Second {
			t.Errorf("%s: killed after %d s, and the drain takes %s and %s", file, seconds, settings.Delay, settings.Timeout)
		}
	}
}

// An image has a full name, because short ones mean something else on each machine, and a digest, because tags move.
// Images of the reader's own registry are placeholders.
var (
	pinned      = regexp.MustCompile(`^[a-z0-9.-]+\.[a-z]+/[a-z0-9./-]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}$`)
	placeholder = regexp.MustCompile(`^registry\.example/[a-z]+:[0-9.]+$`)
)

func TestImagesArePinned(t *testing.T) {
	check := func(file, image string) {
		if !pinned.MatchString(image) && !placeholder.MatchString(image) {
			t.Errorf("%s: %s is not host/name:tag@sha256:digest", filepath.Base(file), image)
		}
	}
	for _, file := range deployments(t) {
		walk(t, file, func(m map[string]any) {
			if image, ok := m["image"].(string); ok {
				check(file, image)
			}
		})
	}
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	froms := regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllSubmatch(text, -1)
	for _, from := range froms {
		if image := string(from[1]); image != "scratch" {
			check("Dockerfile", image)
		}
	}
	if len(froms) == 0 {
		t.Error("the Dockerfile has no FROM")
	}
}
