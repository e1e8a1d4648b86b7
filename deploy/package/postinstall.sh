#!/bin/sh
# Makes the user of the gateway. The unit is neither enabled nor started: its agent is to be chosen first. DPKG_ROOT is the root when dpkg installs
# into another one without changing into it.
set -e
root=${DPKG_ROOT:-}
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers ${root:+--root="$root"} laneway.conf
elif ! grep -qs '^laneway:' "$root/etc/passwd" && command -v useradd >/dev/null; then
	useradd ${root:+--prefix "$root"} --system --user-group --home-dir /var/lib/laneway --shell /usr/sbin/nologin laneway
fi
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart laneway.service
fi
