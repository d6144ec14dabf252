package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/lockproxy/lockproxy/internal/cli"
)

// packaged are the files that are written from the settings and the grammar of the subcommands.
func packaged() map[string]string {
	return map[string]string{
		"../../packaging/lockproxy.1":    manual(),
		"../../packaging/lockproxy.bash": bashCompletion(),
	}
}

// manual is the page lockproxy(1).
func manual() string {
	var b strings.Builder
	roff := strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", "")
	option := func(name, help string) {
		fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff.Replace(name), roff.Replace(help))
	}
	b.WriteString(`.\" Written from the settings by go test ./cmd/lockproxy -run Packaging -update
.TH LOCKPROXY 1
.SH NAME
lockproxy \- a Redis proxy that adds distributed locks
.SH SYNOPSIS
.B lockproxy
[\fIoptions\fR]
`)
	for _, sub := range cli.Subcommands() {
		b.WriteString(strings.TrimSuffix(fmt.Sprintf(".br\n.B lockproxy %s\n[\\fIoptions\\fR] %s", sub.Name, roff.Replace(sub.Args)), " ") + "\n")
	}
	b.WriteString(`.SH DESCRIPTION
Put lockproxy in front of Redis and call LOCK from any client. The proxy renews the lock while the client is connected, and forwards every other
command unchanged. The subcommands ask a running proxy. Their variable LOCKPROXY_URL is the address of the proxy.
.SH OPTIONS
`)
	options := func(flags *pflag.FlagSet) {
		flags.VisitAll(func(flag *pflag.Flag) {
			_, help := pflag.UnquoteUsage(flag)
			name := "--" + flag.Name
			if flag.Shorthand != "" {
				name = "-" + flag.Shorthand + ", " + name
			}
			option(name, help)
		})
	}
	options(ownFlags())
	b.WriteString(".SH SUBCOMMANDS\n")
	for _, sub := range cli.Subcommands() {
		fmt.Fprintf(&b, ".SS lockproxy %s\n%s\n", sub.Name, roff.Replace(sub.Help))
		options(sub.Flags)
	}
	b.WriteString(".SH SETTINGS\nEach is also a variable, LOCKPROXY_LOCK_LEASE for \\-\\-lock\\-lease, and a key of the file, lock.lease.\n")
	for _, s := range settingsOf(new(NewConfig())) {
		option("--"+s.flag(), s.tag.Get("help"))
	}
	fmt.Fprintf(&b, `.SH EXIT STATUS
The proxy: 0 success, 1 failure, 2 a mistake in usage or configuration.
.PP
exec: the status of the command, or %d the proxy cannot be asked, %d the lock was lost, %d another client has the lock, %d the longest hold is over.
.SH EXAMPLES
A proxy in front of Redis:
.PP
.EX
lockproxy \-\-listen 127.0.0.1:7379 \-\-upstream redis.example:6379
.EE
.PP
Try the settings of the service, then load them:
.PP
.EX
lockproxy \-\-check \-\-connect \-\-config /etc/lockproxy/lockproxy.yml
systemctl reload lockproxy
.EE
.PP
A job once on one of many hosts; exit code 75 on the others:
.PP
.EX
lockproxy exec \-n \-\-min\-hold 50s nightly\-report \-\- /usr/local/bin/report
.EE
.PP
At most five at the same time, for which a job waits up to ten minutes:
.PP
.EX
lockproxy exec \-\-limit 5 \-w 10m convert \-\- convert.sh
.EE
.PP
Readers together, and the proxy on another host:
.PP
.EX
lockproxy exec \-s \-u redis://proxy.example:7379 index \-\- search.sh
.EE
.PP
Who has a lock, and its end by force:
.PP
.EX
lockproxy info nightly\-report
lockproxy unlock nightly\-report
.EE
.SH FILES
/etc/lockproxy/lockproxy.yml, /usr/share/doc/lockproxy
.SH SEE ALSO
redis\-cli(1), flock(1)
`, cli.ExitUnreachable, cli.ExitLost, cli.ExitBusy, cli.ExitHeldOut)
	return b.String()
}

func TestPackagingFilesAreTheSettings(t *testing.T) {
	for path, want := range packaged() {
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("run go test ./cmd/lockproxy -run Packaging -update (-want +%s):\n%s", path, diff)
		}
	}
}

// Without these lines systemd takes the proxy for started before clients can connect, and for alive when it hangs.
func TestTheUnitListensToTheProxy(t *testing.T) {
	unit := readText(t, "../../packaging/lockproxy.service")
	for _, line := range []string{"\nType=notify\n", "\nWatchdogSec=", "\nRestart=on-failure\n"} {
		if !strings.Contains(unit, line) {
			t.Errorf("the unit has no %q", line)
		}
	}
}

// The packages of make and those of a release are the same.
func TestBothDescriptionsOfThePackagesAgree(t *testing.T) {
	type packages struct {
		Contents []map[string]any
		Scripts  map[string]string
	}
	var made packages
	var released struct{ Nfpms []packages }
	for file, into := range map[string]any{"../../packaging/nfpm.yaml": &made, "../../.goreleaser.yaml": &released} {
		if err := yaml.Unmarshal([]byte(readText(t, file)), into); err != nil {
			t.Fatal(err)
		}
	}
	made.Contents = made.Contents[1:] // goreleaser adds the program
	if diff := cmp.Diff(made, released.Nfpms[0]); diff != "" {
		t.Errorf("packaging/nfpm.yaml and .goreleaser.yaml differ (-made +released):\n%s", diff)
	}
}

// The documents of the packages link to each other only.
func TestPackagedDocumentsHaveNoDeadLinks(t *testing.T) {
	dir := t.TempDir()
	build := exec.Command("packaging/scripts/docs.sh", dir)
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s, %v", out, err)
	}
	links, link := 0, regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".md") {
			return err
		}
		for _, found := range link.FindAllStringSubmatch(readText(t, path), -1) {
			if strings.HasPrefix(found[1], "http") {
				continue
			}
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), found[1])); err != nil {
				t.Errorf("%s: %s", entry.Name(), found[0])
			}
		}
		return nil
	})
	if err != nil || links < 50 {
		t.Errorf("%d links, %v", links, err)
	}
}

func TestPackagedSettingsAreValid(t *testing.T) {
	if _, err := load([]string{"--config", "../../packaging/lockproxy.yml"}); err != nil {
		t.Error(err)
	}
}

// dpkg calls the scripts with words, and rpm with the number of versions that are there afterwards.
func TestPackageScriptsTellSystemd(t *testing.T) {
	const reload, restart, stop = "daemon-reload\n", "try-restart lockproxy.service\n", "disable --now lockproxy.service\n"
	for _, test := range []struct{ script, arg, want string }{
		{"postinstall", "configure", reload + restart},
		{"postinstall", "1", reload + restart},
		{"postinstall", "2", reload + restart},
		{"preremove", "remove", stop},
		{"preremove", "0", stop},
		{"preremove", "upgrade", ""},
		{"preremove", "1", ""},
		{"postremove", "remove", reload},
		{"postremove", "0", reload},
	} {
		for _, booted := range []bool{true, false} {
			dir := t.TempDir()
			calls, systemd := filepath.Join(dir, "calls"), filepath.Join(dir, "systemd")
			fake := "#!/bin/sh\necho \"$@\" >>" + calls + "\nexit 1\n" // a failure of systemd is none of the package
			if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(fake), 0o755); err != nil {
				t.Fatal(err)
			}
			if booted {
				if err := os.Mkdir(systemd, 0o755); err != nil {
					t.Fatal(err)
				}
			} else {
				test.want = ""
			}
			script := strings.ReplaceAll(readText(t, "../../packaging/scripts/"+test.script+".sh"), "/run/systemd/system", systemd)
			cmd := exec.Command("sh", "-c", script, test.script, test.arg)
			cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin"}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s %s: %v\n%s", test.script, test.arg, err, out)
			}
			got, _ := os.ReadFile(calls) // no file: no call
			if string(got) != test.want {
				t.Errorf("%s %s, systemd %v: it calls systemctl %q, want %q", test.script, test.arg, booted, got, test.want)
			}
		}
	}
}
