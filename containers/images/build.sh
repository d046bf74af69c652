#!/usr/bin/env bash
# build.sh [--base IMAGE --build IMAGE | --base debootstrap] [--packages "numpy …"] [--tag TAG]
# builds xebec-python:TAG and xebec-echo:TAG (TAG is latest unless given) on the engine that DOCKER_HOST names.
#
# By default the base images come from a registry. Without one, --base debootstrap makes them from Debian's packages: it needs
# root, debootstrap and a Debian mirror (MIRROR=http://…), and takes a minute or two. The result is kept in build/images and
# reused; SUITE=bookworm chooses the release. Numpy is Debian's then. Other packages are wheels that pip downloads on this host,
# because the container has no network.
set -euo pipefail
umask 022 # models run as 65534: what is copied into an image keeps its mode
cd "$(dirname "$0")/../.."

base='' build='' packages=numpy tag=latest
while (($#)); do
	case $1 in
	--base) base=$2 ;;
	--build) build=$2 ;;
	--packages) packages=$2 ;;
	--tag) tag=$2 ;;
	*) sed -n '2,3s/^# //p' "$0" >&2; exit 2 ;;
	esac
	shift 2
done

# debootstrapped makes two file systems: base has Python and numpy; build adds a C compiler and Python's headers.
debootstrapped() {
	local suite=${SUITE:-bookworm} out=$PWD/build/images
	out=$out/$suite-$(dpkg --print-architecture)
	if [[ ! -f $out/build.tar ]] || ! open_root "$out/base.tar"; then
		[[ $(id -u) == 0 ]] || { echo 'error: debootstrap needs root' >&2; exit 1; }
		command -v debootstrap >/dev/null || { echo 'error: there is no debootstrap (Debian, Ubuntu: apt-get install debootstrap)' >&2; exit 1; }
		mkdir -p "$out"
		echo "==> debootstrap $suite: Python and numpy (a minute; its log is $out/log)"
		debootstrap --variant=minbase --include=python3,python3-numpy "$suite" "$root" "${MIRROR:-http://deb.debian.org/debian}" >"$out/log" 2>&1 ||
			{ tail -5 "$out/log" >&2; exit 1; }
		pack "$root" "$out/base.tar"
		echo '==> a C compiler, for the binding'
		chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends gcc libc6-dev libpython3-dev >>"$out/log" 2>&1 ||
			{ tail -5 "$out/log" >&2; exit 1; }
		pack "$root" "$out/build.tar" # last: its presence says that all went well
	fi
	base=xebec-base:$suite build=xebec-build:$suite
	if [[ $packages != numpy ]]; then wheels=$packages; fi
	packages=''
	docker import "$out/base.tar" "$base" >/dev/null
	docker import "$out/build.tar" "$build" >/dev/null
	# Without a registry and a network: the builder's commands need neither, and the classic builder needs no image of
	# its own.
	export DOCKER_BUILDKIT=0
	offline=(--network none)
}

pack() { # pack ROOT FILE: without devices, caches and translations
	tar -C "$1" --exclude=./dev --exclude=./proc --exclude=./sys --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' \
		--exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' --exclude='./usr/share/info/*' -cf "$2.part" .
	mv "$2.part" "$2"
}

# open_root FILE: whether every user may enter the file system's root. An image has its root's mode on each storage driver but overlay2.
open_root() { # the root is the first entry
	local first
	first=$(tar -tvf "$1" 2>/dev/null | head -1) || true # head ends before tar does
	[[ $first == drwxr-xr-x* ]]
}

root=$(mktemp -d) context=$(mktemp -d)
trap 'rm -rf "$root" "$context"' EXIT
chmod 755 "$root" "$context" # mktemp makes them for this user alone
offline=() wheels=''
if [[ $base == debootstrap ]]; then debootstrapped; fi

echo "==> xebec-python:$tag"
image() { docker build --quiet "${offline[@]}" "$@" 2>&1 >/dev/null | { grep -vE '^(DEPRECATED: The legacy|  +BuildKit is|  +environment-variable|$)' >&2 || true; }; }
image ${base:+--build-arg "BASE=$base"} ${build:+--build-arg "BUILD=$build"} --build-arg "PACKAGES=$packages" \
	--file containers/images/python/Dockerfile --tag "xebec-python:$tag" worker/bindings/python

if [[ -n $wheels ]]; then
	echo "==> xebec-python:$tag: $wheels"
	version=$(docker run --rm --network none --entrypoint python3 "xebec-python:$tag" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
	# The target is the binding's directory, which precedes Debian's packages in the search path.
	read -ra names <<<"$wheels"
	python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --only-binary=:all: --python-version "$version" --target "$context/xebec" "${names[@]}"
	printf 'FROM xebec-python:%s\nCOPY xebec /usr/local/lib/xebec\n' "$tag" >"$context/Dockerfile"
	image --file "$context/Dockerfile" --tag "xebec-python:$tag" "$context"
	rm -r "$context/xebec" "$context/Dockerfile"
fi

echo "==> xebec-echo:$tag"
CGO_ENABLED=0 "${GO:-go}" build -trimpath -o "$context/echo" ./worker/bindings/go/examples/echo
image --file containers/images/go/Dockerfile --tag "xebec-echo:$tag" "$context"
