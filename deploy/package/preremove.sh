#!/bin/sh
# Stops the gateway when the package is removed. An upgrade ("upgrade" with dpkg, 1 with rpm) restarts it afterwards instead.
set -e
case "${1:-}" in
remove | 0)
	if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
		systemctl disable --now laneway.service
	fi
	;;
esac
