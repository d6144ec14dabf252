//go:build interop

package interop

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// recipe is what surrounds a block of docs/CLIENTS.md, and what all of it prints. Recipes are in the order of the blocks
// of their language.
type recipe struct{ name, before, after, output string }

var pythonRecipes = []recipe{
	{"a connection of its own", "def book(fence): print('booked', fence > 0)", "print(r.execute_command('LOCKINFO', 'invoice:42'))", "booked True\nNone\n"},
	{"two pools", "", "print(others.execute_command('LOCKINFO', 'invoice:42'))", "None\n"},
	{
		"a leader", "steps = []\ndef running(): return len(steps) < 2\n" +
			"def lead(fence):\n    steps.append(fence)\n    if len(steps) == 1: r.execute_command('FORCEUNLOCK', 'leader')",
		"print(steps[0] < steps[1], r.execute_command('LOCKINFO', 'leader'))", "True None\n",
	},
	{"a worker", "queue = []", "print(r.execute_command('LOCKINFO', 'order:7'))", "released\nNone\n"},
	{
		"a migration", "", "r.set('old', 'id', nx=True, px=200)\nown = r.client()\nprint(lock_during_migration(own, 'old') > 0)\n" +
			"print(r.set('old', 'id', nx=True, px=200), lock_during_migration(r.client(), 'old', 0.1))\n" +
			"print(own.execute_command('UNLOCK', 'old'), r.set('old', 'id', nx=True))", "True\nNone None\n1 True\n",
	},
}

var shellRecipes = []recipe{
	{"once in a period", "", "fence=x; " + `[ -z "$(redis-cli -p 7379 TRYLOCK "report:$(date +%F)" PX 1000)" ] && echo "not on the second host"`, "this host makes the report\nnot on the second host\n"},
}

var nodeRecipes = []recipe{
	{
		"the channel", "import { createClient } from 'redis';\nlet stop; const stopped = new Promise(resolve => { stop = resolve; });",
		"await subscriber.sendCommand(['LOCK', 'invoice:42']);\nawait subscriber.sendCommand(['FORCEUNLOCK', 'invoice:42']);\n" +
			"console.log((await stopped).split(' ')[1]);\nprocess.exit();", "forced\n",
	},
}

// TestRecipes runs every block of docs/CLIENTS.md.
func TestRecipes(t *testing.T) {
	t.Parallel()
	const document = "docs/CLIENTS.md"
	for language, runs := range map[string]struct {
		recipes []recipe
		command func(t *testing.T, program string) *exec.Cmd
	}{
		"python": {pythonRecipes, func(t *testing.T, program string) *exec.Cmd {
			imports := "import sys, time, redis\nsys.dont_write_bytecode = True\nsys.path.insert(0, '" + abs(t, root, "examples", "python") + "')\n" +
				"r = redis.Redis.from_url('redis://127.0.0.1:7379')\n"
			return exec.Command(python(t), "-c", imports+program)
		}},
		"sh": {shellRecipes, func(t *testing.T, program string) *exec.Cmd {
			requireTools(t, "redis-cli")
			return exec.Command("sh", "-euc", program)
		}},
		"javascript": {nodeRecipes, func(t *testing.T, program string) *exec.Cmd {
			cmd := exec.Command("node", "--input-type=module", "-e", program)
			cmd.Dir = node(t)
			return cmd
		}},
	} {
		found := blocks(t, document, language)
		if len(found) != len(runs.recipes) {
			t.Errorf("%s: %d blocks, and %d are run", language, len(found), len(runs.recipes))
			continue
		}
		for i, r := range runs.recipes {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				cmd := runs.command(t, strings.Join([]string{r.before, found[i], r.after}, "\n"))
				s := newStand(t, redistest.Loopback)
				_, port, _ := strings.Cut(s.proxy, ":")
				for j := range cmd.Args {
					cmd.Args[j] = strings.NewReplacer("127.0.0.1:7379", s.proxy, "-p 7379", "-p "+port).Replace(cmd.Args[j])
				}
				runProgram(t.Context(), limit, cmd).want(t, exampleDone, "^"+regexp.QuoteMeta(r.output)+"$")
			})
		}
	}
}
