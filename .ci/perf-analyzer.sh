#!/usr/bin/env bash
# perf-analyzer.sh: puts NVIDIA's perf_analyzer into build/perf-analyzer, with which `make test-clients` measures a gateway. The program needs
# glibc 2.38: where the machine's is older, it gets Debian 13's libraries, which it finds in its own folder. Nothing is installed on the machine.
set -euo pipefail
cd "$(dirname "$0")/.."

package=perf-analyzer==2.60.0
mirror=${DEBIAN_MIRROR:-https://deb.debian.org/debian}
libraries=(libc6 libstdc++6 libgcc-s1 libssl3t64 zlib1g)
folder=$PWD/build/perf-analyzer

want=$(sha256sum <.ci/perf-analyzer.sh)
[[ $(cat "$folder/installed.sum" 2>/dev/null) != "$want" ]] || exit 0
failed() {
	echo "error: $1" >&2
	exit 1
}
[[ $(uname -sm) == 'Linux x86_64' ]] || failed "perf_analyzer is there for Linux on x86-64 only, and this is $(uname -sm)."

echo "==> installing $package into build/perf-analyzer"
python=$(.ci/need.sh python)
rm -rf "$folder" && mkdir -p "$folder/root"
"$python" -m pip --disable-pip-version-check --no-input download --quiet --no-deps --only-binary :all: --platform manylinux_2_38_x86_64 --dest "$folder" "$package" ||
	failed "pip could not download $package (its message is above)."
"$python" -m zipfile -e "$folder"/*.whl "$folder"
program=$folder/perf_analyzer.bin
mv "$folder/perf_analyzer/bin/perf_analyzer" "$program" && chmod +x "$program"
rm -r "$folder"/*.whl "$folder/perf_analyzer"

glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d' ' -f2)
if [[ $(printf '%s\n' 2.38 "${glibc:-0}" | sort -V | head -n 1) != 2.38 ]]; then
	command -v dpkg-deb >/dev/null && command -v xz >/dev/null || failed "perf_analyzer needs glibc 2.38, this machine has ${glibc:-another library}, and dpkg-deb and xz, which would unpack Debian's, are not there."
	curl -sSf "$mirror/dists/trixie/main/binary-amd64/Packages.xz" | xz -d >"$folder/packages"
	for library in "${libraries[@]}"; do
		# Each package's paragraph of the index names its file and the checksum.
		read -r file sum < <(awk -v RS= -v FS='\n' -v name="Package: $library" '$1 == name {
			for (i = 1; i <= NF; i++) { if ($i ~ /^Filename: /) file = substr($i, 11); if ($i ~ /^SHA256: /) sum = substr($i, 9) }
			print file, sum }' "$folder/packages")
		curl -sSf -o "$folder/$library.deb" "$mirror/$file" && echo "$sum  $folder/$library.deb" | sha256sum --check --quiet || failed "$mirror has not the $library that its index names."
		dpkg-deb --extract "$folder/$library.deb" "$folder/root"
		rm "$folder/$library.deb"
	done
	rm "$folder/packages"
	libs=$folder/root/usr/lib/x86_64-linux-gnu
	launch=("$libs/ld-linux-x86-64.so.2" --library-path "$libs" "$program")
else
	launch=("$program")
fi
printf '#!/bin/sh\nexec %s "$@"\n' "$(printf '%q ' "${launch[@]}")" >"$folder/perf_analyzer"
chmod +x "$folder/perf_analyzer"
"$folder/perf_analyzer" --version >/dev/null || failed 'perf_analyzer does not start (its message is above).'
echo "${package#*==}" >"$folder/version"
echo "$want" >"$folder/installed.sum"
