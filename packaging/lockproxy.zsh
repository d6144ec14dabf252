#compdef lockproxy
# zsh completion for lockproxy, written by go test ./cmd/lockproxy -run Packaging -update
_lockproxy() {
	case $words[2] in
	exec)
		_arguments \
		'--url=[The proxy\: redis\://user\:password@host\:port/db, rediss\:// for TLS, unix\:///path]:value:_files' \
		'--password-file=[FILE that holds the password, if it is not in the URL]:value:_files' \
		'--wait=[Longest wait for the lock, as in 10s; a number, as 0.5, is seconds]:value:_files' \
		'--no-wait[Do not wait, as --wait 0s]' \
		'--conflict-exit-code=[Exit CODE if another client has the lock]:value:_files' \
		'--quiet[Do not say that another client has the lock]' \
		'--fair[First come, first served (FAIRLOCK)]' \
		'--shared[Hold the lock together with other shared holders, but with no exclusive one]' \
		'--limit=[Run at most N commands of this lock at the same time (LIMIT)]:value:_files' \
		'--lease=[Lease of the lock]:value:_files' \
		'--min-hold=[Keep the lock for this time since its grant, even if the command has ended]:value:_files' \
		'--max-hold=[End the command after this time]:value:_files' \
		'*::argument:_default'
		;;
	locks)
		_arguments \
		'--url=[The proxy\: redis\://user\:password@host\:port/db, rediss\:// for TLS, unix\:///path]:value:_files' \
		'--password-file=[FILE that holds the password, if it is not in the URL]:value:_files' \
		'--match=[List only keys that match PATTERN, as in KEYS]:value:_files' \
		'--count=[List at most N locks]:value:_files' \
		'--json[Print JSON]' \
		'*::argument:_default'
		;;
	info)
		_arguments \
		'--url=[The proxy\: redis\://user\:password@host\:port/db, rediss\:// for TLS, unix\:///path]:value:_files' \
		'--password-file=[FILE that holds the password, if it is not in the URL]:value:_files' \
		'--json[Print JSON]' \
		'*::argument:_default'
		;;
	unlock)
		_arguments \
		'--url=[The proxy\: redis\://user\:password@host\:port/db, rediss\:// for TLS, unix\:///path]:value:_files' \
		'--password-file=[FILE that holds the password, if it is not in the URL]:value:_files' \
		'--json[Print JSON]' \
		'--owner=[Release one hold of the OWNER ID only]:value:_files' \
		'--fence=[Release the grant with the fence N only, with all its holds]:value:_files' \
		'--shared[With --owner\: release its shared hold]' \
		'*::argument:_default'
		;;
	*)
		_arguments \
		'--config=[Configuration FILE (YAML)]:value:_files' \
		'--check[Validate the configuration and exit\: 0 valid, 2 not]' \
		'--connect[With --check\: also open the listeners and ask Redis whether it serves the proxy'\''s user]' \
		'--health[Ask the proxy that runs with this configuration whether it lives, whatever the state of Redis, and exit\: 0 it answers, 1 not]' \
		'--ready[Ask the proxy that runs with this configuration whether it serves clients from Redis, and exit\: 0 it does, 1 not]' \
		'--version[Print the version and exit]' \
		'--help[Show the usual flags and exit]' \
		'--help-all[Show all flags and exit]' \
		'--listen=[Addresses for clients\: host\:port, tls\:host\:port or unix\:/path]:value:_files' \
		'--embedded[Serve from an in-process Redis instead of an upstream]' \
		'--client-auth=[Credentials of clients'\'' commands\: upstream (the client'\''s own), proxy (the proxy'\''s, until the client logs in) or none (always the proxy'\''s)]:value:_files' \
		'--upstream=[Redis\: host\:port, unix\:/path, sentinel\://host\:port,host\:port/name (the primary of that name) or cluster\://host\:port,host\:port]:value:_files' \
		'--upstream-user=[ACL user of the proxy'\''s own connections]:value:_files' \
		'--upstream-password=[Password of the proxy'\''s own connections]:value:_files' \
		'--upstream-password-file=[File that holds the password]:value:_files' \
		'--upstream-tls[Connect to Redis by TLS]' \
		'--upstream-ca-file=[Trusted CA certificates (PEM) for Redis'\''s certificate]:value:_files' \
		'--upstream-cert-file=[Client certificate (PEM) for Redis and the Sentinels, if they ask for one (tls-auth-clients)]:value:_files' \
		'--upstream-key-file=[Key (PEM) of upstream.cert-file]:value:_files' \
		'--upstream-server-name=[Name that Redis'\''s certificate must have]:value:_files' \
		'--upstream-map=[Reachable address of a server that Sentinels or a cluster announce with another one\: two of host\:port, or two hosts]:value:_files' \
		'--sentinel-user=[ACL user of the proxy at the Sentinels]:value:_files' \
		'--sentinel-password=[Password of the proxy at the Sentinels]:value:_files' \
		'--sentinel-password-file=[File that holds the password for the Sentinels]:value:_files' \
		'--sentinel-tls[Connect to the Sentinels by TLS]' \
		'--sentinel-ca-file=[Trusted CA certificates (PEM) for the Sentinels'\'' certificates]:value:_files' \
		'--lock-lease=[Lease of a lock taken without PX or EX, renewed every third of it while the client is connected]:value:_files' \
		'--lock-grace=[Shorten the lease to this when the client'\''s connection ends]:value:_files' \
		'--lock-reentry=[The owner of a lock taken without OWNER\: connection (which may acquire it again), owner (each acquire is its own owner) or auto (owner for client libraries that announce themselves, else connection)]:value:_files' \
		'--lock-note=[Note of a lock taken without NOTE\: client (its name or address and the proxy'\''s host, from the first renewal on) or off]:value:_files' \
		'--lock-max-hold=[Longest hold of a renewed lock]:value:_files' \
		'--lock-slow=[Log waits for locks and holds of locks that take longer, when they end]:value:_files' \
		'--lock-sync=[Replicas that must have a grant before its client is told\: a number, or all that the Sentinels or the cluster know]:value:_files' \
		'--drain-delay=[Time after SIGTERM or SIGINT in which clients are accepted as before while /readyz says 503]:value:_files' \
		'--drain-timeout=[Time after drain.delay in which clients are closed at quiet moments, and holders of locks are served]:value:_files' \
		'--log-level=[Lowest level that is logged\: debug, info, warn or error]:value:_files' \
		'--tcp-keepalive=[Idle time before TCP keepalive probes]:value:_files' \
		'--tcp-user-timeout=[Close a connection whose peer has acknowledged nothing for this time, although bytes or probes are outstanding (Linux)]:value:_files' \
		'--tls-cert-file=[Certificate (PEM) for tls\: addresses, with its chain]:value:_files' \
		'--tls-key-file=[Key (PEM) of tls.cert-file]:value:_files' \
		'--tls-ca-file=[Trusted CA certificates (PEM) for clients'\'' certificates]:value:_files' \
		'--tls-auth-clients=[Certificates of clients\: yes (required), optional (checked if shown) or no (not asked for)]:value:_files' \
		'--proxy-protocol=[PROXY headers (v1 or v2) in front of TCP connections\: off, optional or required]:value:_files' \
		'--admin-listen=[Address for metrics, health and a status page over HTTP]:value:_files' \
		'--admin-pprof[Also serve profiles at admin-listen]' \
		'--failover-wait=[How long a command waits while Redis is away or its server moves]:value:_files' \
		'--max-clients=[Most client connections]:value:_files' \
		'--max-memory=[Memory for all clients together\: a size, or a share of the machine'\''s or container'\''s memory]:value:_files' \
		'--client-output-limit=[Most bytes of replies that a client has not read]:value:_files' \
		'--max-pins=[Most connections to Redis for single clients (MULTI, SUBSCRIBE, BLPOP ...)]:value:_files' \
		'--max-waiters=[Most clients that wait for locks]:value:_files' \
		'1:subcommand:(exec locks info unlock help)'
		;;
	esac
}
_lockproxy "$@"
