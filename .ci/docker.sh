#!/usr/bin/env bash
# docker.sh start DIR: runs a Docker engine of the tests' own, with everything it has below DIR (a short path: sockets have 107 bytes),
# without networks, and prints its address for DOCKER_HOST. It takes over what an engine that was killed left in DIR.
# docker.sh stop DIR: ends it with all that it has started, and removes DIR.
# Needs root, dockerd and control groups; where one is missing it says which and fails. DOCKERD_FLAGS adds flags.
set -euo pipefail

fail() { echo "docker.sh: $1" >&2; exit 1; }
command=${1:-} dir=${2:-}
[[ $dir == /* && $dir != / ]] || fail 'usage: docker.sh start|stop DIR (an absolute path)'

# below PROGRAMS prints the ids of the processes of these programs that belong to this engine: they have DIR in their command lines.
below() {
	local file words
	for file in /proc/[0-9]*/cmdline; do
		words=$({ tr '\0' ' ' <"$file"; } 2>/dev/null) || continue
		[[ $words =~ ^[^\ ]*($1)\ .*$dir/ ]] && basename "${file%/cmdline}"
	done
	return 0
}

# mounts prints what is mounted below DIR, the innermost first.
mounts() { awk -v d="$dir/" 'index($5, d) == 1 {print $5}' /proc/self/mountinfo | sort -r; }

stop() {
	local pid mount i
	if pid=$(cat "$dir/pid" 2>/dev/null) && grep -qz "$dir/" "/proc/$pid/cmdline" 2>/dev/null; then
		kill "$pid" # it ends its containers
		for ((i = 0; i < 200; i++)); do
			[[ -d /proc/$pid ]] || break
			sleep 0.1
		done
	fi
	for ((i = 0; i < 100; i++)); do # shims of containers that outlived a killed engine: theirs end with them
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
	[[ $(id -u) == 0 ]] || fail 'an engine of the tests own needs root'
	command -v dockerd >/dev/null || fail 'there is no dockerd (Debian, Ubuntu: apt-get install docker.io)'
	((${#dir} < 60)) || fail "the path $dir is too long"
	mkdir -p "$dir"
	rm -f "$dir/pid" "$dir/docker.sock"
	# A killed engine's containerd dies with it. Where nobody reaps it, the next engine would take what is left of it for alive.
	while [[ -n $(below containerd) ]]; do sleep 0.1; done
	rm -f "$dir/exec/containerd/containerd.pid"
	# Nothing of the network is touched. Debian's dockerd finds its containerd and runc on the PATH.
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
	fail 'dockerd does not run here (its last words are above)'
}

answers() { docker --host "unix://$dir/docker.sock" version >/dev/null 2>&1; }

case $command in
start) start ;;
stop) stop ;;
*) fail 'usage: docker.sh start|stop DIR' ;;
esac
