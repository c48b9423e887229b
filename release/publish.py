"""`python3 -m release.publish`: the release commit and its tags; with `--check`, whether they could be made.

It exits with 0, or with 1 and the reason; `image-names` in GITHUB_OUTPUT are the names that the image gets. It changes
the remote's tags, and in the checkout nothing but git's objects.

Whatever was interrupted can be repeated: the commit is made of the same bytes each time, and its tags are pushed at
once.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
from pathlib import Path

from release.pin_image import pin_image
from release.refusal import Refused
from release.remote import Repository
from release.versions import Version, is_newest, read_version

MAIN = "refs/heads/main"


def main(argv: list[str] | None = None) -> int:
    """Publish, or tell in one line why not."""
    arguments = _read_arguments(argv)
    try:
        version = read_version(arguments.version)
        repository = Repository(Path.cwd(), remote=arguments.remote)
        if arguments.check:
            check_release(repository, version)
        else:
            newest = publish(repository, version, image=arguments.image, digest=arguments.digest)
            _write_output("image-names", _image_names(arguments.image, version, newest))
    except Refused as refusal:
        print(f"::error title=release::{refusal}")
        return 1
    except subprocess.CalledProcessError as failure:
        print(f"::error title=release::`{' '.join(failure.cmd)}` failed: {' '.join(failure.stderr.split())}")
        return 1
    return 0


def check_release(repository: Repository, version: Version) -> None:
    """Raise `Refused` when this version could not be released from this commit, before anything is built."""
    _check_sources(repository, version)
    # Outside of a workflow there is no such variable, and a person may look from any branch.
    if (ref := os.environ.get("GITHUB_REF", MAIN)) != MAIN:
        raise Refused(f"releases are made from {MAIN}, not from {ref}. Start the workflow with `--ref main`.")
    if version.tag in repository.tags():
        raise Refused(
            f"{version.tag} exists already. To finish a release that stopped half-way, let its own run repeat the "
            "failed jobs; otherwise raise the version in pyproject.toml."
        )


def publish(repository: Repository, version: Version, *, image: str, digest: str) -> bool:
    """Push the release commit under its tags. Gives whether the major tag belongs to it, too."""
    _check_sources(repository, version)
    metadata = pin_image(repository.read("action.yml"), image, digest)
    commit = repository.commit_file("action.yml", metadata, message=f"Release {version}")
    tags = repository.tags()
    if tags.get(version.tag, commit) != commit:
        raise Refused(
            f"{version.tag} is released already, from another commit or with another image, and never moves. To finish "
            "a release that stopped half-way, let its own run repeat the failed jobs; otherwise raise the version."
        )
    newest = is_newest(version, tags)
    wanted = [version.tag, *([version.major_tag] if newest else [])]
    missing = {tag: tags.get(tag, "") for tag in wanted if tags.get(tag) != commit}
    if missing:
        repository.push_tags(commit, missing)
    for tag in wanted:
        print(f"{tag} is {commit}{'' if tag in missing else ', as before'}")
    return newest


def _check_sources(repository: Repository, version: Version) -> None:
    declared = tomllib.loads(repository.read("pyproject.toml").decode())["project"]["version"]
    if declared != str(version):
        raise Refused(f"pyproject.toml says version {declared}, not {version}. Release that one, or change it first.")
    if f"\n## [{version}]" not in repository.read("CHANGELOG.md").decode():
        raise Refused(f"CHANGELOG.md has no heading `## [{version}]`. Give what stands under Unreleased that heading.")


def _image_names(image: str, version: Version, newest: bool) -> str:
    return " ".join([f"{image}:{version}", *([f"{image}:{version.major}"] if newest else [])])


def _write_output(name: str, value: str) -> None:
    if file := os.environ.get("GITHUB_OUTPUT"):
        with Path(file).open("a", encoding="utf-8") as output:
            output.write(f"{name}={value}\n")


def _read_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m release.publish", description=__doc__.splitlines()[0])
    parser.add_argument("--version", required=True, help="X.Y.Z, the version in pyproject.toml")
    parser.add_argument("--remote", default="origin")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="change nothing; say whether it could be released")
    what.add_argument("--digest", help="digest of the pushed image, sha256:…")
    parser.add_argument("--image", default="", help="repository of the image, such as ghcr.io/org/stepflow-action")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
