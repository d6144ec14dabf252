package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
)

// settings lists the keys of Config, sections joined by dots.
func settings() []string {
	var keys []string
	for _, s := range settingsOf(new(NewConfig())) {
		keys = append(keys, s.key)
	}
	return keys
}

// fileKeys lists the keys that a file has, in the same form.
func fileKeys(t *testing.T, name string) map[string]bool {
	t.Helper()
	var tree map[string]any
	if err := yaml.Unmarshal([]byte(readText(t, name)), &tree); err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	for key, value := range tree {
		section, ok := value.(map[string]any)
		if !ok {
			keys[key] = true
		}
		for name := range section {
			keys[key+"."+name] = true
		}
	}
	return keys
}

func readText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "lockproxy.yml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// settingOf is the setting of a key.
func settingOf(cfg *Config, key string) *setting {
	all := settingsOf(cfg)
	return all[slices.IndexFunc(all, func(s *setting) bool { return s.key == key })]
}

// show is the loaded value of a key as text.
func show(t *testing.T, args []string, key string) string {
	t.Helper()
	cmd, err := load(args)
	if err != nil {
		t.Fatalf("load %q: %v", args, err)
	}
	s := settingOf(&cmd.Config, key)
	if secret, ok := reflect.TypeAssert[Secret](s.field); ok {
		return string(secret)
	}
	return s.String()
}

// A setting of each kind: all are made from one table.
func TestFlagWinsOverEnvironmentOverFileOverDefault(t *testing.T) {
	for key, value := range map[string][3]string{
		"listen":              {"127.0.0.1:1001", "127.0.0.1:1002", "unix:/tmp/a.sock"},
		"upstream.address":    {"127.0.0.1:1001", "127.0.0.1:1002", "unix:/tmp/a.sock"},
		"upstream.password":   {"from-file", "from-env", "from-flag"},
		"embedded":            {"true", "false", "true"},
		"lock.lease":          {"2s", "3s", "4s"},
		"lock.grace":          {"2s", "3s", "4s"},
		"lock.sync":           {"1", "2", "3"},
		"log.level":           {"debug", "warn", "error"},
		"max-pins":            {"1", "2", "3"},
		"max-memory":          {"40mb", "50mb", "40%"},
		"client-output-limit": {"2mb", "3mb", "4mb"},
	} {
		t.Run(key, func(t *testing.T) {
			names := settingOf(new(NewConfig()), key)
			file := key + ": " + value[0] + "\n"
			if section, name, nested := strings.Cut(key, "."); nested {
				file = section + ":\n  " + name + ": " + value[0] + "\n"
			}
			args := []string{"--config", writeFile(t, file)}
			if got := show(t, args, key); got != value[0] {
				t.Errorf("file: got %s, want %s", got, value[0])
			}
			t.Setenv(names.variable(), value[1])
			if got := show(t, args, key); got != value[1] {
				t.Errorf("environment over file: got %s, want %s", got, value[1])
			}
			args = append(args, "--"+names.flag()+"="+value[2])
			if got := show(t, args, key); got != value[2] {
				t.Errorf("flag over environment: got %s, want %s", got, value[2])
			}
		})
	}
}

// Each of two settings that are valid only together may come from somewhere else.
func TestSettingsAreJudgedTogether(t *testing.T) {
	t.Setenv("LOCKPROXY_UPSTREAM_USER", "somebody")
	cmd, err := load([]string{"--config", writeFile(t, "upstream:\n  password: secret\n")})
	if err != nil {
		t.Fatal(err)
	}
	if cmd.Upstream.User != "somebody" || cmd.Upstream.Password != "secret" {
		t.Errorf("got %+v", cmd.Upstream)
	}
}

func TestNothingGivenLoadsTheDefaults(t *testing.T) {
	for _, args := range [][]string{nil, {"--config", writeFile(t, "# nothing\n")}, {"--config", writeFile(t, "lock:\n")}} {
		cmd, err := load(args)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(NewConfig(), cmd.Config); diff != "" {
			t.Errorf("load %q (-defaults +loaded):\n%s", args, diff)
		}
	}
}

func TestListenFlagIsRepeatableAndReplacesTheFile(t *testing.T) {
	file := writeFile(t, "listen: [127.0.0.1:1, 127.0.0.1:2]\n")
	tests := []struct {
		args, want []string
	}{
		{[]string{"--config", file}, []string{"127.0.0.1:1", "127.0.0.1:2"}},
		{[]string{"--config", writeFile(t, "listen: 127.0.0.1:7\n")}, []string{"127.0.0.1:7"}},
		{[]string{"--listen", ":3,unix:/a"}, []string{":3", "unix:/a"}},
		{[]string{"--config", file, "--listen", ":3", "--listen", "unix:/a b"}, []string{":3", "unix:/a b"}},
	}
	for _, test := range tests {
		cmd, err := load(test.args)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, []string(cmd.Listen)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.args, diff)
		}
	}
}

// A value passes from the file through the flag parser, which has an escape syntax of its own.
func TestFileValuesArriveUnchanged(t *testing.T) {
	for _, password := range []string{"plain", "007", "${HOME}", "$$", "a,b", `c\d`, "--listen", "-x", `"q"`, "1e3", "ö"} {
		args := []string{"--config", writeFile(t, "upstream:\n  password: '"+password+"'\n")}
		if got := show(t, args, "upstream.password"); got != password {
			t.Errorf("got %q, want %q", got, password)
		}
	}
	for yaml, want := range map[string]string{"007": "007", "1e3": "1e3", "0x1F": "0x1F", "true": "true", "a b # c": "a b", "|-\n    block": "block", "": ""} {
		if got := show(t, []string{"--config", writeFile(t, "upstream:\n  password: "+yaml+"\n")}, "upstream.password"); got != want {
			t.Errorf("unquoted %s: got %q, want %q", yaml, got, want)
		}
	}
	path := `unix:/run/a,b\c $x.sock`
	if got := show(t, []string{"--config", writeFile(t, "listen: ['"+path+"']\n")}, "listen"); got != path {
		t.Errorf("got %q, want %q", got, path)
	}
}

func TestPasswordIsNotShown(t *testing.T) {
	const secret = "hunter2"
	cmd, err := load([]string{"--upstream-password", secret})
	if err != nil {
		t.Fatal(err)
	}
	help, err := load([]string{"--config", writeFile(t, "upstream:\n  password: "+secret+"\n"), "--help"})
	if err != nil {
		t.Fatal(err)
	}
	_, broken := load([]string{"--config", writeFile(t, "upstream:\n  password: "+secret+"\n  pasword: x\n")})
	_, listed := load([]string{"--config", writeFile(t, "upstream:\n  password: ["+secret+"]\n")})
	if listed == nil {
		t.Error("a list is taken for a password")
	}
	_, invalid := load([]string{"--upstream-password", secret, "--max-pins=0"})
	for _, value := range []string{"*" + secret, "&" + secret, "!" + secret, "|" + secret, ">" + secret + " x", "{" + secret, "'" + secret, "\n    " + secret + ": x"} {
		if _, err := load([]string{"--config", writeFile(t, "upstream:\n  password: "+value+"\n")}); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("password: %s: %v", value, err)
		}
	}
	if _, err := load([]string{"--config", writeFile(t, "upstream:\n  <<: *"+secret+"\n")}); err == nil || strings.Contains(err.Error(), secret) {
		t.Error(err)
	}
	for _, address := range []string{secret, "redis://u:" + secret + "@h:1", "me:" + secret, "sentinel://:" + secret + "@h:1/m", "cluster://h:1/" + secret} {
		if _, err := load([]string{"--upstream", address}); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("--upstream %s: %v", address, err)
		}
	}
	encoded, err := yaml.Marshal(cmd.Config)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"%v": fmt.Sprintf("%v", cmd), "%+v": fmt.Sprintf("%+v", cmd), "%#v": fmt.Sprintf("%#v", cmd.Config),
		"help": help.help, "yaml": string(encoded),
		"file error": fmt.Sprint(broken), "list error": fmt.Sprint(listed), "value error": fmt.Sprint(invalid),
	} {
		if strings.Contains(text, secret) {
			t.Errorf("%s shows the password:\n%s", name, text)
		}
	}
}

// What is written as a number of another kind is not rounded, and no text is read as a number first.
func TestValuesAreTakenAsTheyAreWritten(t *testing.T) {
	for key, values := range map[string][]string{
		"max-clients":         {"1.5", "010", "-1", "1.0", "1e3", "0x10", "0b1", "0o7", "1_000", "+5", "99999999999999999999", "true", "ten", "[1]", "{a: 1}", "'1.5'", `""`, "1 000"},
		"failover-wait":       {"5", "'5'", "1.5", "5 s", "5d", "9999999999h", "true", "[5s]", "0x5s", `""`},
		"client-output-limit": {"1.5", "1.5mb", "1e9", "-1", "64 mb", "99999999999999999999", "9999999999gb", "0x10", "1_000_000", `""`, "[64mb]"},
		"embedded":            {"2", "yes"},
	} {
		for _, value := range values {
			if _, err := load([]string{"--config", writeFile(t, key+": "+value+"\n")}); err == nil {
				t.Errorf("%s: %s is accepted", key, value)
			}
			if _, err := load([]string{"--" + key + "=" + strings.Trim(value, `"'`)}); err == nil {
				t.Errorf("--%s=%s is accepted", key, value)
			}
		}
	}
	for _, user := range []string{"007", "1.50", "0x10", "true", "1_0"} {
		cmd, err := load([]string{"--config", writeFile(t, "upstream:\n  user: "+user+"\n  password: x\n")})
		if err != nil || cmd.Upstream.User != user {
			t.Errorf("user %s is %q, %v", user, cmd.Upstream.User, err)
		}
	}
}

func TestAFileWithoutAnEndIsNoConfiguration(t *testing.T) {
	for _, name := range []string{"/dev/zero", writeFile(t, "# "+strings.Repeat("x", fileLimit))} {
		if _, err := load([]string{"--config", name}); err == nil || !strings.Contains(err.Error(), "too large for a configuration") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A file that an editor has truncated must not replace the settings by the defaults.
func TestAnEmptyFileIsNoConfiguration(t *testing.T) {
	for text, fine := range map[string]bool{ // whether they are configurations
		"": false, "\n": false, " \t\n\n": false, "\uFEFF": false, "\uFEFF\n": false,
		"\uFEFF# soon\n": true, "{}": true, "---\n": true, "lock:\n  lease:\nlisten:\n": true, "max-pins: 3\n": true,
	} {
		_, err := load([]string{"--config", writeFile(t, text)})
		if fine && err != nil || !fine && (err == nil || !strings.Contains(err.Error(), "is empty")) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Kubernetes sets variables for each service, whose prefix may be that of a setting. What does not have their form is a
// misspelt setting.
func TestVariablesOfServicesAreNoSettings(t *testing.T) {
	all := settingsOf(new(NewConfig()))
	unknown := func(entry string) bool { return readVariables(all, []string{entry}) != nil }
	for _, service := range []string{"LOCKPROXY", "LOCKPROXY_METRICS", "LOCKPROXY_LISTEN", "LOCKPROXY_LOCK", "LOCKPROXY_ADMIN_LISTEN", "LOCKPROXY_2", "LOCKPROXY_SERVICE", "LOCKPROXY_PORT"} {
		for _, rest := range []string{
			"_SERVICE_HOST=10.0.0.1", "_SERVICE_HOST=fd00::1", "_SERVICE_PORT=7379", "_SERVICE_PORT_REDIS=7379", "_SERVICE_PORT_REDIS_TLS=7380",
			"_PORT=tcp://10.0.0.1:7379", "_PORT=udp://10.0.0.1:7379", "_PORT=tcp://[fd00::1]:7379",
			"_PORT_7379_TCP=tcp://10.0.0.1:7379", "_PORT_7379_TCP_PROTO=tcp", "_PORT_7379_TCP_PORT=7379", "_PORT_7379_TCP_ADDR=10.0.0.1",
			"_PORT_53_UDP=udp://10.0.0.1:53", "_PORT_53_UDP_ADDR=10.0.0.1", "_PORT_9_SCTP=sctp://10.0.0.1:9", "_PORT_9_SCTP_PROTO=sctp",
		} {
			if unknown(service + rest) {
				t.Errorf("%s%s keeps the proxy from starting", service, rest)
			}
		}
	}
	for _, misspelt := range []string{
		"LOCKPROXY_LOCK_LEESE=3s", "LOCKPROXY_PORT=7379", "LOCKPROXY_LISTEN_PORT=7379", "LOCKPROXY_METRICS_PORT=9121", "LOCKPROXY_HOST=10.0.0.1",
		"LOCKPROXY_PORT_7379=tcp://10.0.0.1:7379", "LOCKPROXY_METRICS=tcp://10.0.0.1:9121", "LOCKPROXY_SERVICE=x",
	} {
		if !unknown(misspelt) {
			t.Errorf("%s is taken for no setting", misspelt)
		}
	}
	for _, s := range all {
		if name := s.variable(); serviceVariable().MatchString(name + "=tcp://10.0.0.1:7379") {
			t.Errorf("%s could be set by Kubernetes", name)
		}
	}
}

func TestMistakesAreExplained(t *testing.T) {
	for text, want := range map[string]string{
		"lock.lease: 30s":                     "[1:1] unknown key 'lock.lease': write lease: below lock:",
		"lock: 30s":                           "[1:7] must be a section",
		"- a":                                 "[1:1] must be a section",
		"lock:\nlease: 30s":                   "[2:1] unknown key lease, did you mean lock.lease?",
		"upstream:\n  host: x":                "[2:3] unknown key upstream.host",
		"\tlog: x":                            "[1:4] tab character",
		"log:\n level: info\n   format: json": "[2:9] mapping value is not allowed in this context",
		"lock:\n  lease: 3s\n  lease: 4s":     `[3:3] mapping key "lease" already defined`,
		"upstream:\n  password: |already defined hunter2": `[2:13] invalid header option: this`,
		"lock:\n  lease: 3s\n---\nunheard: true":          "more than one document",
		"client-output-limit: 64xb":                       `[1:22] client-output-limit: "64xb" is not a size like 64mb`,
		"listen:\n  - a\n  -":                             "[3:5] must be a single value",
		"log:\n  level: [info]":                           "[2:10] must be a single value",
		"upstream:\n  password: *a":                       "[2:13] a value that begins with *, & or ! stands in quotes",
		"upstream:\n  password: !x y":                     "[2:13] a value that begins with *, & or ! stands in quotes",
		"log:\n  level: info\nlock:\n  lease: abc":        `[4:10] lock.lease: "abc" is not a duration with a unit, as in 30s or 1h30m`,
		"# a comment\nmax-clients: 1.5":                   `[2:14] max-clients: "1.5" is not a whole number like 1000`,
		"lock:\n  grace: soon":                            `[2:10] lock.grace: "soon" is not a duration`,
		"failover-wait: '5'":                              `[1:16] failover-wait: "5" is not a duration`,
		"embedded: yes":                                   `[1:11] embedded: "yes" is neither true nor false`,
		"max-memory: 200%":                                `[1:13] max-memory: "200%" is not a share`,
	} {
		if _, err := load([]string{"--config", writeFile(t, text+"\n")}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for args, want := range map[string]string{
		"serve": "unexpected argument serve: it is no subcommand (", "version": "did you mean --version?", "exce k": "did you mean exec?",
		"--check x": "unexpected argument x", "--lease 3s": "did you mean --lock-lease?", "--lock-lease 3": `--lock-lease: "3" is not`, "--listen": "--listen needs a value",
	} {
		if _, err := load(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
