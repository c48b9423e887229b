"""`stepflow verify PR`: checks a pull request against the signed statement about the run that made it."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from stepflow.cli.options import add_flags, read_flags
from stepflow.cli.output import print_json
from stepflow.cli.run import request_from
from stepflow.cli.terminal import make_console, print_kinds
from stepflow.errors import InputError
from stepflow.modes.verify import SIGNER, VerifyRequest, verify_pull_request
from stepflow.report.statement import verification_json, verification_lines
from stepflow.sandbox.host_git import ask_git

INPUTS = ("read-token", "github-api-url", "ca-certificates")
_ADDRESS = re.compile(r"https?://[^/]+/(?P<repository>[\w.-]+/[\w.-]+)/pull/(?P<number>\d+)(?:[/?#].*)?")
_REMOTE = re.compile(r".*[/:](?P<repository>[\w.-]+/[\w.-]+?)(?:\.git)?/?")


def add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `verify`."""
    parser.usage = "stepflow verify PR [--signer WORKFLOW | --unsigned] [--run-folder DIR]… [--json] [--INPUT VALUE …]"
    parser.add_argument("pull_request", metavar="PR", help="number or address of the pull request")
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument(
        "--signer",
        default=SIGNER,
        metavar="WORKFLOW",
        help=f"the workflow that signs: OWNER/REPOSITORY/PATH (default: {SIGNER})",
    )
    whose.add_argument("--unsigned", action="store_true", help="do not check who made the statement")
    parser.add_argument(
        "--run-folder",
        dest="evidence",
        action="append",
        default=[],
        metavar="DIR",
        help="journal and statement, not the artifact; may be given once for each run",
    )
    parser.add_argument("--bundle", metavar="FILE", help="the signature, instead of the one that GitHub keeps")
    parser.add_argument("--trusted-root", metavar="FILE", help="authorities instead of GitHub's, as `gh` takes them")
    parser.add_argument("--repo", default=".", metavar="DIR", help="the clone (default: the current folder)")
    parser.add_argument("--json", action="store_true", help="print the checks as one JSON object")
    add_flags(parser, INPUTS)


def execute_verify(arguments: argparse.Namespace) -> int:
    """Print the checks, and return 0 if all passed."""
    request = request_from(arguments, read_flags(arguments))
    repository, number = _pull_request(arguments.pull_request, request.root)
    # Not one of the clone, which may be a stranger's.
    folders = (entry for entry in arguments.path.split(os.pathsep) if Path(entry).is_absolute())
    gh = shutil.which("gh", path=os.pathsep.join(folders))
    asked = VerifyRequest(
        number=number,
        signer=arguments.signer,
        is_unsigned=arguments.unsigned,
        folders=tuple(map(_existing, arguments.evidence)),
        bundle=arguments.bundle and _existing(arguments.bundle),
        trusted_root=arguments.trusted_root and _existing(arguments.trusted_root),
        gh=Path(gh) if gh else None,
    )
    verification = verify_pull_request(replace(request, repository=repository), asked)
    if arguments.json:
        print_json(verification_json(verification))
    else:
        print_kinds(make_console(sys.stdout), verification_lines(verification))
    return 1 if verification.failed else 0


def _pull_request(text: str, root: Path) -> tuple[str, int]:
    """Return repository and number. A number alone is of the repository that the clone came from."""
    if address := _ADDRESS.fullmatch(text):
        return address["repository"], int(address["number"])
    if not text.isdecimal():
        raise InputError(f"{text} is no pull request.", hint="Give its number or its address.")
    repository = os.environ.get("GITHUB_REPOSITORY", "")
    if not repository and (remote := _REMOTE.fullmatch(ask_git(root, "remote", "get-url", "origin", may_fail=True))):
        repository = remote["repository"]
    if not repository:
        raise InputError("It is not known which repository this is.", hint="Give the pull request's address.")
    return repository, int(text)


def _existing(text: str) -> Path:
    path = Path(text).resolve()
    if not path.exists():
        raise InputError(f"There is no {path}.", hint="Check the path.")
    return path
