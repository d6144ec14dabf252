#!/bin/sh
# After the installation of a deb or an rpm, and after an upgrade: the program that runs is replaced. A service that does
# not run is not started, because its settings are not known yet.
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload || :
systemctl try-restart lockproxy.service || echo "lockproxy.service has not restarted: journalctl -u lockproxy" >&2
