#!/bin/sh
# Before the removal of a deb ("remove") or an rpm (0, the versions that are left). An upgrade restarts the service later.
case "$1" in remove | 0) ;; *) exit 0 ;; esac
[ -d /run/systemd/system ] || exit 0
systemctl disable --now lockproxy.service || echo "lockproxy.service has not stopped: systemctl status lockproxy" >&2
