#!/bin/sh
# Runs the core tests in front of each version of Redis and Valkey that is supported, as one server, behind Sentinels
# and as a cluster: versions.sh [NAME ...]
#
# The servers are those of Debian. They are unpacked into bin/servers, and nothing is installed. A name is one of the
# first column.
set -eu
cd "$(dirname "$0")/.."

servers='
redis-7.0	bookworm	redis-server
valkey-8.0	bookworm-backports	valkey-server
valkey-8.1	trixie	valkey-server
redis-8.0	trixie	redis-server
'

# Not run in front of versions other than 7.0, whose answers these tests expect word for word. Cases of TestScripts say so
# themselves: {7.0}. docs/DIVERGENCE.md, "Versions", says what differs.
words='TestSnapshotIsRedisAnswer' # the table of Redis 7.0's commands
# A refused AUTH in a pipeline.
words="$words|TestIdentitiesAreRedisOwn|TestDifferential|TestReplyModesAreRedisOwn"
words="$words|TestTheNextClientFindsAConnectionAsIfItWereNew|TestLoginsDoNotCompeteWithWork"
# No login in a transaction.
words="$words|TestOverACluster/whole_transactions"
# Texts of errors, new fields and subcommands.
words="$words|TestCommandIsRedisAnswerWithLockCommands|TestClientSpeaksOfItself|TestOverACluster/^commands$"
words="$words|TestWaitMeasuresTheSessionsOwnWrites/by_a_user_who_may_not_PING"

# Valkey 8.0 alone refuses to end subscriptions that there are not.
nosub='TestScripts/pubsub/none_at_all|TestOverACluster/^subscriptions$'

wanted=" $* "
failed=''
while IFS='	' read -r name suite package; do
	[ -n "$name" ] || continue
	case $wanted in "  " | *" $name "*) ;; *) continue ;; esac
	./scripts/fetch-server.sh "bin/servers/$name" "$suite" "$package"
	skip=$words
	case $name in
	redis-7.0) skip='^$' ;;
	valkey-8.0) skip="$words|$nosub" ;;
	esac
	echo "== $name: $("bin/servers/$name/$package" --version)"
	LOCKPROXY_REQUIRE_REDIS=1 LOCKPROXY_REDIS_SERVER=$PWD/bin/servers/$name/$package \
		"${GO:-go}" test -vet=off -count=1 -timeout 20m -skip "$skip" \
		./internal/proxy/ ./internal/lockcmds/... ./test/... ./internal/upstream/... ./internal/redistest/ || failed="$failed $name"
done <<END
$servers
END
[ -z "$failed" ] || {
	echo "versions: failed in front of:$failed" >&2
	exit 1
}
