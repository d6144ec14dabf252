package embedded_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Each expectation is the answer of Redis 7.0, but for the texts of errors that Lua's interpreters word differently.
func TestErrorsOfScriptsReadAsThoseOfRedis(t *testing.T) {
	_, c := start(t)
	for script, want := range map[string]string{
		`error("boom")`: "ERR user_script:1: boom script: 872b3fcb081448525c6141cdfa3df8374d30d162, on @user_script:1.",
		"\nlocal function f() error('x') end f()": "ERR user_script:2: x script: ",
		`return nil+1`: "ERR user_script:1: cannot perform add operation between nil and number script: 06da94268985d443d9a2d8145ac0234e4f02562c, on @user_script:1.",
		`return x`:     "ERR user_script:1: Script attempted to access nonexistent global variable 'x' script: 03c387736bb5cc009ff35151572cee04677aa374, on @user_script:1.",
		`redis.call("set","s","x") return redis.call("incr","s")`:     "ERR value is not an integer or out of range script: 9bdc81cc8aaecd8bc74a95c15eb954c6b347477e, on @user_script:1.",
		`redis.call("set","s","x") return redis.call("hget","s","x")`: "WRONGTYPE Operation against a key holding the wrong kind of value script: ",
		`return redis.call("nosuch")`:                                 "ERR Unknown Redis command called from script script: 2218effcac8108416909801acfb39c080a85adfa, on @user_script:1.",
		`return redis.error_reply("MY err")`:                          "MY err",
		`return redis.pcall("nosuch")`:                                "",
		`error({})`:                                                   "ERR unknown error script: ",
		`one two`:                                                     "ERR Error compiling script (new function): ",
	} {
		err := c.Eval(ctx(t), script, nil).Err()
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "traceback") {
			t.Errorf("%s:\n%v, want\n%s", script, err, want)
		}
	}
	sha := c.ScriptLoad(ctx(t), `error("boom")`).Val()
	if err := c.EvalSha(ctx(t), sha, nil).Err(); err == nil || err.Error() != "ERR user_script:1: boom script: "+sha+", on @user_script:1." {
		t.Errorf("EVALSHA: %v", err)
	}
}

func TestScriptsKeepTheStateOfTheirConnection(t *testing.T) {
	_, c := start(t)
	conn := c.Conn()
	defer conn.Close()
	if got := conn.Select(ctx(t), 3); got.Err() != nil {
		t.Fatal(got.Err())
	}
	if err := conn.Eval(ctx(t), `return redis.call("set","k",ARGV[1])`, nil, "v").Err(); err != nil {
		t.Fatal(err)
	}
	if got := conn.Get(ctx(t), "k").Val(); got != "v" {
		t.Errorf("the script has written to another database: %q", got)
	}
	var eval *redis.Cmd
	if _, err := conn.TxPipelined(ctx(t), func(p redis.Pipeliner) error {
		eval = p.Eval(ctx(t), `return redis.call("get","k")`, nil)
		return nil
	}); err != nil || eval.Val() != "v" {
		t.Errorf("a script in a transaction: %v, %v", eval, err)
	}
}
