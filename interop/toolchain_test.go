//go:build interop

package interop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// fetchLimit bounds the installation of one language's packages.
const fetchLimit = 5 * time.Minute

// installing is held while packages are installed: Maven's local repository is no place for two at once.
var installing sync.Mutex

// missing skips the test for want of something, or fails it where nothing may be skipped.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("LOCKPROXY_REQUIRE_INTEROP") == "1" {
		t.Fatalf("LOCKPROXY_REQUIRE_INTEROP=1, but "+format, args...)
	}
	t.Skipf(format, args...)
}

func requireTools(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			missing(t, "there is no %s here", name)
		}
	}
}

// installed returns a directory of the cache that install has filled. It is made once for each content of the given
// files, and again if an installation did not finish.
func installed(t *testing.T, name string, files []string, install func(ctx context.Context, dir string) error) string {
	t.Helper()
	hash := sha256.New()
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(hash, "%s %d\n%s", filepath.Base(file), len(b), b)
	}
	dir := filepath.Join(cache, name+"-"+hex.EncodeToString(hash.Sum(nil))[:12])
	done := filepath.Join(dir, ".installed")

	installing.Lock()
	defer installing.Unlock()
	if _, err := os.Stat(done); err == nil {
		return dir
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), fetchLimit)
	defer cancel()
	start := time.Now()
	if err := install(ctx, dir); err != nil {
		missing(t, "%s could not be installed: %v", name, err)
	}
	t.Logf("%s installed in %v", name, time.Since(start).Round(time.Millisecond))
	if err := os.WriteFile(done, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// tool runs a command of a toolchain in dir; its output is part of the error.
func tool(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, last(out.Bytes(), 2048))
	}
	return nil
}

// valkey returns the path of a valkey-server of the system, or else of one unpacked into the cache.
func valkey(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("valkey-server"); err == nil {
		return path
	}
	script, err := filepath.Abs(filepath.Join(root, "scripts", "fetch-server.sh"))
	if err != nil {
		t.Fatal(err)
	}
	dir := installed(t, "valkey", []string{script}, func(ctx context.Context, dir string) error {
		return tool(ctx, dir, script, dir, "bookworm-backports", "valkey-server")
	})
	return filepath.Join(dir, "valkey-server")
}

// python returns the interpreter of a virtual environment that has the packages of python/requirements.txt.
func python(t *testing.T) string {
	t.Helper()
	requireTools(t, "python3")
	requirements := abs(t, "python", "requirements.txt")
	dir := installed(t, "python", []string{requirements}, func(ctx context.Context, dir string) error {
		if err := tool(ctx, dir, "python3", "-m", "venv", "."); err != nil {
			return err
		}
		return tool(ctx, dir, "./bin/python", "-m", "pip", "install", "--quiet", "-r", requirements)
	})
	return filepath.Join(dir, "bin", "python")
}

// node returns a directory that has the packages of node/package-lock.json and copies of the given programs: Node looks
// for packages beside the program.
func node(t *testing.T, programs ...string) string {
	t.Helper()
	requireTools(t, "node", "npm")
	manifest, lock := abs(t, "node", "package.json"), abs(t, "node", "package-lock.json")
	dir := installed(t, "node", []string{manifest, lock}, func(ctx context.Context, dir string) error {
		for _, file := range []string{manifest, lock} {
			if err := copyFile(dir, file); err != nil {
				return err
			}
		}
		return tool(ctx, dir, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	})
	for _, file := range programs {
		if err := copyFile(dir, file); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// java returns the class path of the given sources, compiled, with what the pom.xml of the directory asks for. Maven
// only fetches; properties are set with -D.
func java(t *testing.T, name, pom string, properties, sources []string) (classpath string) {
	t.Helper()
	requireTools(t, "java", "javac", "mvn")
	libraries := installed(t, name, []string{pom}, func(ctx context.Context, dir string) error {
		return tool(ctx, dir, "mvn", append([]string{
			"--batch-mode", "--quiet", "--file", pom, "-Dmaven.repo.local=" + filepath.Join(cache, "m2"),
			"-DoutputDirectory=" + dir, "dependency:copy-dependencies",
		}, properties...)...)
	})
	all := filepath.Join(libraries, "*")
	classes := installed(t, name+"-classes", append([]string{pom}, sources...), func(ctx context.Context, dir string) error {
		return tool(ctx, dir, "javac", append([]string{"-proc:none", "-Xlint:-options", "-d", dir, "-cp", all}, sources...)...)
	})
	return classes + string(os.PathListSeparator) + all
}

// javaCommand starts faster than a server would want to.
func javaCommand(classpath, class string, args ...string) *exec.Cmd {
	return exec.Command("java", append([]string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath, class}, args...)...)
}

func abs(t *testing.T, elements ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// copyFile replaces the copy at once, so that a test that runs it at the same time sees all of the old or the new one.
func copyFile(dir, file string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(dir, ".copy-*")
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.Rename(out.Name(), filepath.Join(dir, filepath.Base(file)))
}
