package lockcmds

import (
	"crypto/sha1"
	_ "embed" // the scripts are files
	"encoding/hex"
	"strings"
)

// Script is one of the embedded Lua scripts. It is immutable.
type Script struct {
	name string
	id   int
	text string
	sha  string
}

// Name is the file name without ".lua".
func (s *Script) Name() string { return s.name }

// ID is a small number, the same in every engine.
func (s *Script) ID() int { return s.id }

// Text is the whole script, for EVAL.
func (s *Script) Text() string { return s.text }

// SHA is the name of the script for EVALSHA: 40 lower-case hexadecimal digits.
func (s *Script) SHA() string { return s.sha }

// scripts holds one Script for each file.
type scripts struct {
	ask, acquire, crowd, fair, leave, refresh, deadHead, release, handover, extend, renew, info, head, force, grace *Script
}

// Functions that several scripts begin with.

//go:embed scripts/lib/grant.lua
var grantLua string

//go:embed scripts/lib/take_turn.lua
var takeTurnLua string

//go:embed scripts/lib/deadline.lua
var deadlineLua string

//go:embed scripts/lib/turn.lua
var keptForLua string

//go:embed scripts/lib/free.lua
var freeLua string

//go:embed scripts/lib/drop_late.lua
var dropLateLua string

//go:embed scripts/lib/next_turn.lua
var nextTurnLua string

//go:embed scripts/lib/crowd.lua
var crowdPlaceLua string

//go:embed scripts/lib/give_back.lua
var giveBackLua string

//go:embed scripts/lib/head.lua
var headOfLua string

//go:embed scripts/lib/holder.lua
var holderLua string

//go:embed scripts/lib/wake.lua
var wakeLua string

//go:embed scripts/ask.lua
var askLua string

//go:embed scripts/acquire.lua
var acquireLua string

//go:embed scripts/head.lua
var headLua string

//go:embed scripts/crowd.lua
var crowdLua string

//go:embed scripts/fair.lua
var fairLua string

//go:embed scripts/leave.lua
var leaveLua string

//go:embed scripts/refresh.lua
var refreshLua string

//go:embed scripts/dead_head.lua
var deadHeadLua string

//go:embed scripts/release.lua
var releaseLua string

//go:embed scripts/handover.lua
var handoverLua string

//go:embed scripts/extend.lua
var extendLua string

//go:embed scripts/renew.lua
var renewLua string

//go:embed scripts/info.lua
var infoLua string

//go:embed scripts/force.lua
var forceLua string

//go:embed scripts/grace.lua
var graceLua string

func newScripts() *scripts {
	count := 0
	next := func(name string, parts ...string) *Script {
		s := newScript(name, parts...)
		s.id = count
		count++
		return s
	}
	// Of functions that use others, those come first.
	const nl = "\n"
	queue := headOfLua + nl + freeLua
	crowd := deadlineLua + nl + crowdPlaceLua
	return &scripts{
		ask:      next("ask", askLua),
		acquire:  next("acquire", grantLua, keptForLua, acquireLua),
		crowd:    next("crowd", grantLua, queue, takeTurnLua, keptForLua, crowd, dropLateLua, crowdLua),
		fair:     next("fair", grantLua, queue, takeTurnLua, deadlineLua, dropLateLua, fairLua),
		leave:    next("leave", queue, nextTurnLua, leaveLua),
		refresh:  next("refresh", deadlineLua, refreshLua),
		deadHead: next("dead_head", queue, nextTurnLua, takeTurnLua, deadHeadLua),
		release:  next("release", giveBackLua, queue, releaseLua),
		handover: next("handover", giveBackLua, queue, wakeLua, grantLua, takeTurnLua, crowd, handoverLua),
		extend:   next("extend", headOfLua, wakeLua, extendLua),
		renew:    next("renew", renewLua),
		info:     next("info", holderLua, infoLua),
		head:     next("head", headOfLua, headLua),
		force:    next("force", holderLua, queue, forceLua),
		grace:    next("grace", queue, wakeLua, graceLua),
	}
}

func newScript(name string, parts ...string) *Script {
	text := strings.Join(parts, "\n")
	sum := sha1.Sum([]byte(text)) // Redis names scripts by SHA-1
	return &Script{name: name, text: text, sha: hex.EncodeToString(sum[:])}
}
