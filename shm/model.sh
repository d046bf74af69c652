#!/bin/sh
# Checks doorbell.pml with Spin. The doorbell as specified must hold, and each wrong variant must fail, which shows that
# the model detects a violation of the order. Needs spin and a C compiler (CC, default gcc).
# Exit status: 0 all as expected, 1 an unexpected result, 2 a tool is missing or does not work.
set -u

cc=${CC:-gcc}
here=$(cd "$(dirname "$0")" && pwd)
for tool in spin "$cc"; do
	if ! command -v "$tool" >/dev/null 2>&1; then
		echo "model.sh: $tool was not found; the model of the doorbell was NOT checked." >&2
		echo "model.sh: install it (Debian and Ubuntu: apt-get install spin gcc) and run this again." >&2
		exit 2
	fi
done
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2

broken() {
	echo "model.sh: $1:" >&2
	cat log >&2
	exit 2
}

# check VARIANT EXPECTED: runs the verifier on doorbell.pml with VARIANT defined; EXPECTED is "holds" or "fails".
failed=0
check() {
	rm -f pan pan.* ./*.trail
	define=
	[ "$1" = specified ] || define="-D$1"
	# $define is empty or one word.
	spin $define -a "$here/doorbell.pml" >log 2>&1 || broken "spin does not accept doorbell.pml with $1"
	"$cc" -O2 -w -DSAFETY -DMEMLIM=2048 -o pan pan.c >log 2>&1 || broken "$cc does not compile the verifier of $1"
	./pan -m200000 >log 2>&1
	# An incomplete search proves nothing, and a failure must be one of the model's assertions.
	if grep -Eq 'max search depth too small|out of memory|reached -DMEMLIM|aborted' log; then
		broken "the search of $1 was cut short"
	fi
	if grep -q 'errors: 0$' log; then
		found=holds
	elif grep -q 'assertion violated' log; then
		found=fails
	else
		broken "the verifier of $1 printed neither 'errors: 0' nor a violated assertion"
	fi
	verdict=ok
	if [ "$found" != "$2" ]; then
		verdict=WRONG
		failed=1
	fi
	states=$(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' log)
	printf '%-5s  %-18s expected: %s  found: %s  (%s states)\n' "$verdict" "$1" "$2" "$found" "$states"
	if [ "$verdict" = WRONG ]; then
		cat log >&2
	fi
}

check specified holds
check NO_FENCE_PRODUCER fails
check NO_FENCE_CONSUMER fails
check NO_RECHECK fails
check DRAIN_AFTER fails
check NO_RELEASE fails
exit $failed
