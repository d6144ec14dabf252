# bash completion for lockproxy, written by go test ./cmd/lockproxy -run Packaging -update
_lockproxy() {
	local word=${COMP_WORDS[COMP_CWORD]} words='--help --config --check --connect --health --ready --version --help-all --listen --embedded --client-auth --upstream --upstream-user --upstream-password --upstream-password-file --upstream-tls --upstream-ca-file --upstream-cert-file --upstream-key-file --upstream-server-name --upstream-map --sentinel-user --sentinel-password --sentinel-password-file --sentinel-tls --sentinel-ca-file --lock-lease --lock-grace --lock-reentry --lock-note --lock-max-hold --lock-slow --lock-sync --drain-delay --drain-timeout --log-level --tcp-keepalive --tcp-user-timeout --tls-cert-file --tls-key-file --tls-ca-file --tls-auth-clients --proxy-protocol --admin-listen --admin-pprof --failover-wait --max-clients --max-memory --client-output-limit --max-pins --max-waiters'
	case ${COMP_WORDS[1]} in
	exec) words='--help --url --password-file --wait --no-wait --conflict-exit-code --quiet --fair --shared --limit --lease --min-hold --max-hold' ;;
	locks) words='--help --url --password-file --match --count --json' ;;
	info) words='--help --url --password-file --json' ;;
	unlock) words='--help --url --password-file --json --owner --fence --shared' ;;
	help) words='exec locks info unlock' ;;
	*) [ "$COMP_CWORD" -eq 1 ] && words="exec locks info unlock help $words" ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -o default -F _lockproxy lockproxy
