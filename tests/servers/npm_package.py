"""One file out of a package of the npm registry."""

import subprocess
import tarfile
import tempfile
from pathlib import Path


def fetch_member(package: str, version: str, member: str) -> bytes:
    """The content of the package's file `member`."""
    with tempfile.TemporaryDirectory() as folder:
        pack = ["npm", "pack", "--silent", f"{package}@{version}"]
        subprocess.run(pack, cwd=folder, check=True, capture_output=True, timeout=300)
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive:
            content = archive.extractfile(f"package/{member}")
            assert content is not None
            return content.read()
