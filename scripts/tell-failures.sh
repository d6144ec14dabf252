#!/bin/sh
# Runs a command, passes on its output, and behind it tells again which tests failed, with their first lines:
# tell-failures.sh COMMAND [ARG]... Its exit code is the command's. Within itself it only runs the command.
set -u
[ -z "${TELL_FAILURES:-}" ] || exec "$@"
export TELL_FAILURES=1
log=$(mktemp) && trap 'rm -f "$log" "$log.code"' EXIT
{ "$@" 2>&1; echo $? >"$log.code"; } | tee "$log"
code=$(cat "$log.code")
[ "$code" != 0 ] || exit 0

printf '\n==== What failed above ====\n'
# Some places show only the end of a log. A test's lines come behind its name, or before it where go test has -v.
awk '
	function tell(line) {
		line = substr(line, 1, 240)
		if (told + length(line) > 3300) more++
		else { print line; told += length(line) + 1 }
	}
	/^=== (RUN|NAME|CONT) / { name = $3; left = 0; next }
	/^ *--- FAIL: / {
		tell($0)
		for (i = 1; i <= 6 && i <= lines[$3]; i++) tell(line[$3, i])
		left = name ? 0 : 6; next
	}
	/^FAIL\t|^[^ \t].*\.go:[0-9]+:[0-9]+: |^make.*\*\*\* / { tell($0) }
	/^(ok|FAIL)\t/ { hung = 0 }
	/^ *--- |^(ok|\?|FAIL|PASS)/ { name = ""; left = 0; next }
	/^panic: |^fatal error: |^SIG[A-Z]+: |^WARNING: DATA RACE/ { left = 20; stack = !/test timed out/; hung = !stack }
	/^Previous (read|write) at/ { left = 5 }
	/^goroutine / { left = stack ? 12 : 0; stack = 0; next }
	/^$/ { left = 0 }
	/^\t.*_test\.go:[0-9]+ / && hung && !seen[$1]++ && ++waits <= 12 { tell($0); next }
	left > 0 { tell($0); left-- }
	name && /^ / { line[name, ++lines[name]] = $0 }
	END { if (more) print "and " more " more lines" }
' "$log"
exit "$code"
