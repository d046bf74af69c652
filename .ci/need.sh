#!/usr/bin/env bash
# need.sh go|cc|python|node|curl|spin|redis|docker: succeeds silently if the tool is installed, else says what is missing and how to install it.
# `need.sh python` prints the interpreter that it chose.
set -euo pipefail

go_min=26       # go.mod: 1.26
python_min=11   # 3.11, for numpy and scikit-learn in deploy/demo/requirements.txt

missing() {
	echo "error: $1" >&2
	echo "       $2" >&2
	exit 1
}

case "${1:?usage: need.sh go|cc|python|node|curl|spin|redis|docker}" in
go)
	go=${GO:-go}
	command -v "$go" >/dev/null ||
		missing "Go 1.$go_min or newer is needed, and there is no '$go' on the PATH." \
			"Get it from https://go.dev/dl/ (unpack to /usr/local, add /usr/local/go/bin to the PATH)."
	# Run inside the module: a go command older than go.mod fetches the toolchain that go.mod names, if it is allowed to.
	version=$("$go" env GOVERSION 2>/dev/null) || version=$("$go" version)
	[[ $version =~ go1\.([0-9]+) ]] && ((BASH_REMATCH[1] >= go_min)) ||
		missing "Go 1.$go_min or newer is needed; '$go' is ${version:-of an unknown version}." \
			"Get it from https://go.dev/dl/, or set GO=/path/to/go."
	;;
cc)
	command -v "${CC:-cc}" >/dev/null || command -v gcc >/dev/null ||
		missing "a C compiler is needed (the race detector and the binding's C extension are built with it)." \
			"Debian, Ubuntu: apt-get install gcc libc6-dev. Fedora: dnf install gcc. macOS: xcode-select --install."
	;;
python)
	for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
		command -v "$candidate" >/dev/null || continue
		found=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
		if [[ ${found%%.*} == 3 ]] && ((${found#*.} >= python_min)); then
			"$candidate" -c 'import venv, ensurepip' 2>/dev/null ||
				missing "'$candidate' (Python $found) has no venv module." \
					"Debian, Ubuntu: apt-get install python3-venv. Or name another interpreter: make PYTHON=/path/to/python3."
			echo "$candidate"
			exit 0
		fi
		seen="${seen:-}${seen:+, }$candidate is $found"
	done
	missing "Python 3.$python_min or newer is needed for the demo's numpy and scikit-learn (${seen:-there is no ${PYTHON:-python3} on the PATH})." \
		"Debian, Ubuntu: apt-get install python3 python3-venv. Or name one: make PYTHON=/path/to/python3."
	;;
curl)
	command -v curl >/dev/null || missing 'curl is needed for the tests of the clients of other servers.' 'Debian, Ubuntu: apt-get install curl.'
	;;
node)
	node --version 2>/dev/null | grep -qE '^v(2[0-9]|[3-9][0-9])\.' && command -v npm >/dev/null ||
		missing "Node.js 20 or newer with npm is needed for the tests of the TypeScript client; found '$(node --version 2>/dev/null || echo nothing)'." \
			"Debian, Ubuntu: apt-get install nodejs npm (Debian 13 or newer). Elsewhere: https://nodejs.org."
	;;
spin)
	command -v spin >/dev/null ||
		missing "the model checker spin is needed to check the doorbell (shm/doorbell.pml)." \
			"Debian, Ubuntu: apt-get install spin. Elsewhere: https://spinroot.com."
	;;
redis)
	command -v redis-server >/dev/null ||
		missing "redis-server 5 or newer is needed: the Go tests start it, kill it and start it again." \
			"Debian, Ubuntu: apt-get install redis-server. Fedora: dnf install redis. Elsewhere: https://redis.io. It does not have to run."
	;;
docker)
	command -v dockerd >/dev/null && command -v docker >/dev/null && command -v debootstrap >/dev/null ||
		missing "dockerd and docker (20.10 or newer) and debootstrap are needed: the Go tests start an engine and run replicas in containers on it." \
			"Debian, Ubuntu: apt-get install docker.io debootstrap (and docker-cli, if there is such a package). The service does not have to run."
	;;
*)
	missing "need.sh knows go, cc, python, spin, redis and docker, not '$1'." "See .ci/need.sh."
	;;
esac
