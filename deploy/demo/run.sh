#!/usr/bin/env bash
# run.sh [--listen ADDR] [--admin ADDR] [--data-dir DIR]: serves the demo in the foreground and prints commands to try once
# it is ready. Ctrl-C reaches the gateway, which ends its workers. `make run` builds everything first.
set -euo pipefail
cd "$(dirname "$0")/../.."

listen=127.0.0.1:1337 admin=127.0.0.1:1338 data=build/demo-data
while (($#)); do
	case $1 in
	--listen) listen=$2 ;;
	--admin) admin=$2 ;;
	--data-dir) data=$2 ;;
	*)
		echo "error: run.sh does not know '$1'; it takes --listen ADDR, --admin ADDR and --data-dir DIR." >&2
		exit 2
		;;
	esac
	shift 2
done

python=$PWD/build/venv/bin/python
mkdir -p "$data"

# The subshell ends at once, so that the gateway, which replaces this shell, does not inherit an unknown child. After the exec $$ is
# the gateway's process id.
( "$python" deploy/demo/try.py "http://$listen" $$ & )

echo "==> serving deploy/demo at http://$listen (functions) and http://$admin (admin)"
exec bin/xebec serve --config deploy/demo --listen "$listen" --admin "$admin" --python "$python" --data-dir "$data"
