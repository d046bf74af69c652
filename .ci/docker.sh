#!/usr/bin/env bash
# docker.sh start DIR: starts a Docker engine for the tests and prints its address for DOCKER_HOST. The engine has no networks and keeps
# all files below DIR, which must be a short path: a socket's path has at most 107 bytes. If an engine was killed, the next one takes over
# its files in DIR.
# docker.sh stop DIR: ends the engine and every process that it has started, and removes DIR.
# Needs root, dockerd and control groups. If one is missing the script names it and fails. DOCKERD_FLAGS adds flags.
set -euo pipefail

fail() { echo "docker.sh: $1" >&2; exit 1; }
command=${1:-} dir=${2:-}
[[ $dir == /* && $dir != / ]] || fail 'usage: docker.sh start|stop DIR (an absolute path)'

# below PROGRAMS prints the ids of those processes of PROGRAMS that belong to this engine, which means that DIR is in the command line.
below() {
	local file words
	for file in /proc/[0-9]*/cmdline; do
		words=$({ tr '\0' ' ' <"$file"; } 2>/dev/null) || continue
		[[ $words =~ ^[^\ ]*($1)\ .*$dir/ ]] && basename "${file%/cmdline}"
	done
	return 0
}

# mounts prints the mount points below DIR, the innermost first.
mounts() { awk -v d="$dir/" 'index($5, d) == 1 {print $5}' /proc/self/mountinfo | sort -r; }

stop() {
	local pid mount i
	if pid=$(cat "$dir/pid" 2>/dev/null) && grep -qz "$dir/" "/proc/$pid/cmdline" 2>/dev/null; then
		kill "$pid" # the engine ends its containers
		for ((i = 0; i < 200; i++)); do
			[[ -d /proc/$pid ]] || break
			sleep 0.1
		done
	fi
	for ((i = 0; i < 100; i++)); do # containers can outlive a killed engine: kill their shims and the shims' children
		pid=$(below 'dockerd|containerd|containerd-shim[^ ]*')
		[[ -n $pid ]] || break
		for pid in $pid; do
			kill -KILL $(cat "/proc/$pid/task/$pid/children" 2>/dev/null) "$pid" 2>/dev/null || true
		done
		sleep 0.1
	done
	for mount in $(mounts); do umount -l "$mount" 2>/dev/null || true; done
	rm -rf "$dir"
}

start() {
	[[ $(id -u) == 0 ]] || fail 'starting an engine for the tests needs root'
	command -v dockerd >/dev/null || fail 'dockerd is not on the PATH (Debian, Ubuntu: apt-get install docker.io)'
	((${#dir} < 60)) || fail "the path $dir is too long: expected fewer than 60 bytes"
	mkdir -p "$dir"
	rm -f "$dir/pid" "$dir/docker.sock"
	# A killed engine's containerd dies with it. Until it is reaped the next engine would take it for alive.
	while [[ -n $(below containerd) ]]; do sleep 0.1; done
	rm -f "$dir/exec/containerd/containerd.pid"
	# The flags leave the machine's network settings alone. Debian's dockerd finds its containerd and runc on the PATH.
	# shellcheck disable=SC2086
	setsid dockerd --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/pid" --host "unix://$dir/docker.sock" \
		--iptables=false --ip6tables=false --bridge=none ${DOCKERD_FLAGS:-} >>"$dir/log" 2>&1 </dev/null &
	local pid=$! i
	for ((i = 0; i < 300; i++)); do
		if answers; then
			echo "unix://$dir/docker.sock"
			return
		fi
		[[ -d /proc/$pid ]] || break
		sleep 0.1
	done
	tail -5 "$dir/log" >&2
	stop
	fail 'dockerd does not run here (the end of its log is above)'
}

answers() { docker --host "unix://$dir/docker.sock" version >/dev/null 2>&1; }

case $command in
start) start ;;
stop) stop ;;
*) fail 'usage: docker.sh start|stop DIR' ;;
esac
