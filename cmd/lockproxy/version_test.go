package main

import (
	"runtime/debug"
	"testing"
)

func TestVersionNamesTheSources(t *testing.T) {
	revision := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: modified}}
	}
	for name, test := range map[string]struct {
		version, commit string
		info            debug.BuildInfo
		want            string
	}{
		"make build": {
			version: "v0.1.0-3-g0123456", commit: "0123456789abcdef", info: debug.BuildInfo{Main: debug.Module{Version: "(devel)"}},
			want: "v0.1.0-3-g0123456 (commit 0123456789abcdef, go, here)",
		},
		"go install of a release": {
			info: debug.BuildInfo{Main: debug.Module{Version: "v0.1.0", Sum: "h1:abc="}},
			want: "v0.1.0 (sources h1:abc=, go, here)",
		},
		"go build in a clone": {
			info: debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20261122080000-0123456789ab"}, Settings: revision("false")},
			want: "v0.0.0-20261122080000-0123456789ab (commit 0123456789abcdef, go, here)",
		},
		"go build in a changed clone": {
			info: debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20261122080000-0123456789ab+dirty"}, Settings: revision("true")},
			want: "v0.0.0-20261122080000-0123456789ab+dirty (commit 0123456789abcdef, go, here)",
		},
		"nothing is known": {
			info: debug.BuildInfo{Main: debug.Module{Version: "(devel)"}},
			want: "dev (commit unknown, go, here)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := buildOf(test.version, test.commit, &test.info)
			got.made = "go, here"
			if got.String() != test.want {
				t.Errorf("got %s\nwant %s", got, test.want)
			}
		})
	}
}
