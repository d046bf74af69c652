"""Data that Debian's packages ship, and what is left out for want of a package."""

import hashlib
import io
import subprocess
import tarfile
import tempfile
from pathlib import Path


class Missing(Exception):
    """A data set cannot be had. The message says what is needed."""


def debian(package, folder, files, checksum):
    """The files of a folder that a package of Debian installs, as bytes by name: from where the package is installed, or from
    the package, which is downloaded and not installed. checksum is the SHA-256 of all files, one after the other."""
    there = Path("/", folder)
    found = {name: (there / name).read_bytes() for name in files} if all((there / name).is_file() for name in files) else unpacked(downloaded(package), folder, files)
    if hashlib.sha256(b"".join(found[name] for name in files)).hexdigest() != checksum:
        raise Missing(f"the files of {package} in {folder} are not those that this was written for")
    return found


def downloaded(package):
    """The package as a tar archive."""
    with tempfile.TemporaryDirectory() as into:
        try:
            subprocess.run(["apt-get", "download", "-q", package], cwd=into, check=True, capture_output=True)
            (path,) = Path(into).glob("*.deb")
            return subprocess.run(["dpkg-deb", "--fsys-tarfile", str(path)], check=True, capture_output=True).stdout
        except (OSError, ValueError, subprocess.CalledProcessError) as e:
            raise Missing(f"Debian's package {package} could not be downloaded: install it, or run where apt reaches an archive") from e


def unpacked(archive, folder, files):
    """Files of a folder in a tar archive, as bytes by name."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        members = {m.name.removeprefix("./"): m for m in tar.getmembers() if m.isfile()}
        try:
            return {name: tar.extractfile(members[f"{folder}/{name}"]).read() for name in files}
        except KeyError as e:
            raise Missing(f"the package has no file {e.args[0]}") from e
