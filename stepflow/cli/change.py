"""`stepflow prove [BASE..HEAD]`: shows whether the tests of a change test it. `stepflow verify PR`: checks a pull
request against the signed statement about the run that made it."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from stepflow.cli.layouts.find import find_proof_command
from stepflow.cli.options import add_flags, add_option, add_repo, add_switch, read_flags
from stepflow.cli.run import request_from
from stepflow.cli.terminal import make_console, print_json, show_lines, show_note
from stepflow.domain.proof import MOST_HUNKS, ProofSettings, ProofVerdict
from stepflow.domain.words import Network
from stepflow.errors import InputError
from stepflow.modes.prove import prove
from stepflow.modes.verify import SIGNER, VerifyRequest, verify_pull_request
from stepflow.report.proof import proof_json, proof_lines
from stepflow.report.statement import verification_json, verification_lines
from stepflow.run.clock import Cancellation
from stepflow.run.request import RunRequest
from stepflow.run.start.server import host_of
from stepflow.sandbox.host_git import ask_git

#: Inputs that the user sets: how the command is run.
PROVE_INPUTS = (
    *("limits", "isolation", "network", "setup", "apt-packages", "pass-env"),
    "working-directory",
)


def add_prove_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `prove`."""
    parser.add_argument("change", nargs="?", default="", metavar="BASE..HEAD", help="the change (default: this branch)")
    parser.add_argument(
        "--command",
        dest="run",
        metavar="COMMAND",
        help="runs the tests; {tests} is the changed test files (default: what the repository's files suggest)",
    )
    parser.add_argument("--tests", nargs="+", metavar="GLOB", help="files that are tests (default: by convention)")
    add_option(parser, "--max-hunks", "N", "parts to try by themselves", default=MOST_HUNKS)
    add_repo(parser)
    add_switch(parser, "--json", "print the proof as one JSON object on stdout")
    add_flags(parser, PROVE_INPUTS)


def execute_prove(arguments: argparse.Namespace) -> int:
    """Try the change, print the proof, and return 0 if it is proven."""
    # What the change runs may be somebody else's.
    network = arguments.network or Network.NONE
    request = request_from(arguments, read_flags(arguments, network=network))
    command = find_proof_command(request.root, request.programs or ()) if arguments.run is None else arguments.run
    console = make_console(sys.stderr if arguments.json else sys.stdout)
    if arguments.run is None and command:
        show_note(console, f"the command {command}")
    with Cancellation().listening() as cancellation:
        proof = prove(
            request,
            cancellation,
            commits=arguments.change,
            command=command,
            settings=ProofSettings(tests=tuple(arguments.tests or ()), most_hunks=arguments.max_hunks),
            note=lambda name: show_note(console, name),
        )
    show_lines(console, proof_lines(proof))
    if proof.verdict is not ProofVerdict.PROVEN and arguments.network is None:
        show_note(console, "the tests had no network; if they need one: --network full, or --network allow")
    if arguments.json:
        print_json(proof_json(proof))
    return 0 if proof.verdict is ProofVerdict.PROVEN else 1


VERIFY_INPUTS = ("read-token", "github-api-url", "github-server-url", "ca-certificates")
_ADDRESS = re.compile(r"https?://(?P<host>[^/@]+)/(?P<repository>[\w.-]+/[\w.-]+)/pull/(?P<number>\d+)(?:[/?#].*)?")
_REMOTE = re.compile(r".*[/:](?P<repository>[\w.-]+/[\w.-]+?)(?:\.git)?/?")


def add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `verify`."""
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
    add_switch(parser, "--json", "print the checks as one JSON object")
    add_flags(parser, VERIFY_INPUTS)


def execute_verify(arguments: argparse.Namespace) -> int:
    """Print the checks, and return 0 if all passed."""
    request = request_from(arguments, read_flags(arguments))
    repository, number = _pull_request(arguments.pull_request, request)
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
        show_lines(make_console(sys.stdout), verification_lines(verification))
    return 1 if verification.failed else 0


def _pull_request(text: str, request: RunRequest) -> tuple[str, int]:
    """Return repository and number. A number alone is of the repository that the clone came from."""
    server = request.inputs.github_server_url
    if address := _ADDRESS.fullmatch(text):
        if address["host"].casefold() != urlsplit(server).netloc.casefold():
            raise InputError(
                f"{text} is not on {host_of(server)}, the server whose token this command has.",
                hint=f"Set --github-server-url https://{address['host']}, with a token of that server.",
            )
        return address["repository"], int(address["number"])
    if not text.isdecimal():
        raise InputError(f"{text} is no pull request.", hint="Give its number or its address.")
    repository = os.environ.get("GITHUB_REPOSITORY", "")
    origin = "" if repository else ask_git(request.root, "remote", "get-url", "origin", may_fail=True)
    if remote := _REMOTE.fullmatch(origin):
        repository = remote["repository"]
    if not repository:
        raise InputError("It is not known which repository this is.", hint="Give the pull request's address.")
    return repository, int(text)


def _existing(text: str) -> Path:
    path = Path(text).resolve()
    if not path.exists():
        raise InputError(f"There is no {path}.", hint="Check the path.")
    return path
