"""`python3 -m release.try_image IMAGE`: what a person would try first of an image, and the sandbox's own test in it.

It needs nothing but Python, git and Docker, so that it runs on every machine that the image is made for.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from release.refusal import Refused

#: What the runner would hand the container for a preflight of our own agent, with the answers of its scenario file.
PREFLIGHT = {
    "GITHUB_WORKSPACE": "/github/workspace",
    "GITHUB_EVENT_NAME": "workflow_dispatch",
    "INPUT_MODE": "preflight",
    "INPUT_AGENT": "fixer",
    "INPUT_ISSUE": "1",
    "INPUT_ISSUE-TEXT": "Add an .editorconfig.",
    "INPUT_PROVIDER": "scripted",
    "INPUT_SCENARIO": ".agent/fixer/scenarios/adds-an-editorconfig.yaml",
    "INPUT_BOUNDARY": "dry-run",
}


def main() -> int:
    """Try the image that the first argument names."""
    try:
        try_image(sys.argv[1], Path.cwd())
    except Refused as refusal:
        print(f"::error title=image::{refusal}")
        return 1
    return 0


def try_image(image: str, checkout: Path) -> None:
    """Raise `Refused` when the image is not what a release may give to people. None of it needs a network."""
    declared = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    _expect(_run(image, "--version"), f"stepflow {declared}")
    with tempfile.TemporaryDirectory() as scratch:
        clone = ["git", "clone", "--quiet", f"file://{checkout}", f"{scratch}/clone"]
        subprocess.run(clone, check=True)  # noqa: S603 - fixed words, no shell
        mounted = [f"--volume={scratch}/clone:/github/workspace", "--workdir=/github/workspace"]
        _expect(_run(image, "validate", options=mounted), "fixer: no problems")
        given = [option for name, value in PREFLIGHT.items() for option in ("--env", f"{name}={value}")]
        _expect(_run(image, options=[*mounted, *given]), "self-test: the parent in /proc kept")
    _expect(_run(image, "demo"), "This was a dry run")


def _run(image: str, *arguments: str, options: list[str] | None = None) -> str:
    command = ["docker", "run", "--rm", "--network=none", *(options or []), image, *arguments]
    print(f"::group::{' '.join(command)}", flush=True)
    done = subprocess.run(  # noqa: S603 - fixed words and the image's name, no shell
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    print(f"{done.stdout}\n::endgroup::", flush=True)
    if done.returncode:
        raise Refused(f"`{' '.join(command)}` ended with {done.returncode}. What it printed stands above.")
    return done.stdout


def _expect(printed: str, wanted: str) -> None:
    """Look for the words, however wide the columns are that they stand in."""
    if wanted not in " ".join(printed.split()):
        raise Refused(f"the image did not print {wanted!r}. What it printed stands above.")


if __name__ == "__main__":
    sys.exit(main())
