"""Verifies a pull request: its commits are those that a run of the repository's own definition pushed after its checks,
as the signed statement about that run says."""

from __future__ import annotations

import json
import lzma
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.domain.event import RunStarted
from stepflow.domain.json import JsonObject, JsonValue, value_at
from stepflow.domain.reports.report import SIGNATURE, CheckState, StatementCheck, Verification
from stepflow.domain.text import count, name_some
from stepflow.errors import InputError, StepflowError
from stepflow.journal import iter_journal
from stepflow.report.statement import PREDICATE_TYPE, find_differences
from stepflow.run.ending import STATEMENT, statement_of
from stepflow.run.issue import repository_reader
from stepflow.run.prepare import load_requested
from stepflow.run.readiness import AGENT_NAME
from stepflow.run.recorded import JOURNAL
from stepflow.run.request import RunRequest
from stepflow.run.resume import COMMIT
from stepflow.run.start.inputs import read_inputs
from stepflow.run.start.server import host_of, signing_host
from stepflow.run.start.trigger import Trigger
from stepflow.sandbox.host_git import head_commit, write_files_of
from stepflow.sandbox.workspace import temporary_folder

if TYPE_CHECKING:
    from stepflow.boundary.github_types import CommitNow, PullRequest
    from stepflow.boundary.repository_reader import RepositoryReader, SignedStatement

#: The workflow of this project that signs.
SIGNER = "org/stepflow-action/.github/workflows/agent.yml"
#: Anybody's workflow can give its artifact the name that is looked for.
MOST_ARTIFACTS = 10
#: Bytes of what is unpacked. GitHub takes predicates of up to 16 MB.
LARGEST = {JOURNAL: 500_000_000, STATEMENT: 20_000_000}
#: The inputs that decide what an agent's definition is.
_OF_DEFINITION = ("agent", "allow", "checks", "prove", "working-directory")
_CHUNK = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class VerifyRequest:
    """What to verify, and by what."""

    number: int
    #: Whose signature counts: OWNER/REPOSITORY/PATH of a workflow file.
    signer: str = SIGNER
    is_unsigned: bool = False
    #: Run folders instead of the artifacts on GitHub, and what `gh` is given instead of GitHub's own.
    folders: tuple[Path, ...] = ()
    bundle: Path | None = None
    trusted_root: Path | None = None
    #: GitHub's command line; None if there is none.
    gh: Path | None = None


@dataclass(kw_only=True)
class _Evidence:
    """The checks of one statement, and the commits of the pull request that it covers."""

    checks: list[StatementCheck] = field(default_factory=list)
    covered: frozenset[str] = frozenset()

    @property
    def failures(self) -> int:
        return sum(each.state is CheckState.FAILED for each in self.checks)

    def add(self, name: str, problem: str, *, fine: str, hint: str = "", warning: str = "") -> None:
        """Add a check, which failed if there is a problem."""
        state = CheckState.FAILED if problem else CheckState.WARNING if warning else CheckState.OK
        self.checks.append(
            StatementCheck(name=name, state=state, detail=problem or warning or fine, hint=hint if problem else "")
        )


def verify_pull_request(request: RunRequest, asked: VerifyRequest) -> Verification:
    """Check the pull request in the repository of the request, whose clone is its root. Raises `InputError` where
    GitHub or the files that were named cannot be read."""
    token = request.inputs.read_token or request.inputs.github_token
    secret = token.get_secret_value() if token else ""
    with closing(repository_reader(request, secret or None)) as reader, temporary_folder(request.root) as scratch:
        pull = reader.pull_request(asked.number)
        case = _Case(
            request=replace(request, repository=reader.full_name()),
            asked=asked,
            token=secret,
            reader=reader,
            scratch=scratch,
            pull=pull,
            commits=reader.pull_request_commits(asked.number),
        )
        found = [*map(case.check, asked.folders)] or [*case.check_artifacts()]
    evidence = _Evidence(checks=[check for each in found for check in each.checks])
    case.add_coverage(evidence, found)
    case.add_merge(evidence)
    return Verification(
        pull_request=f"{case.request.repository}#{asked.number}",
        head=pull.head_commit,
        checks=tuple(evidence.checks),
    )


@dataclass(frozen=True, kw_only=True)
class _Case:
    request: RunRequest
    asked: VerifyRequest
    token: str
    reader: RepositoryReader
    scratch: Path
    pull: PullRequest
    #: Oldest first.
    commits: tuple[CommitNow, ...]

    @property
    def host(self) -> str:
        """The host under which GitHub signs for this repository; empty where it does not."""
        return signing_host(self.request.inputs)

    def check_artifacts(self) -> Iterator[_Evidence]:
        """Look for the statement about each commit, newest first, and skip those that a newer one covers."""
        covered: set[str] = set()
        for commit in reversed(self.commits):
            if commit.oid in covered:
                continue
            found = [self.check(folder) for folder in self._unpack(commit.oid)]
            if found:
                best = min(found, key=lambda each: each.failures)
                covered.update(best.covered)
                yield best

    def _unpack(self, commit: str) -> Iterator[Path]:
        for artifact in self.reader.artifacts(artifact_name(commit))[:MOST_ARTIFACTS]:
            folder = self.scratch / f"artifact-{artifact.id}"
            folder.mkdir()
            if unpack_artifact(self.reader.packed_artifact(artifact), LARGEST, folder):
                yield folder

    def check(self, folder: Path) -> _Evidence:
        """Check the statement and the journal in a folder."""
        evidence, journal = _Evidence(), folder / JOURNAL
        try:
            statement = statement_of(journal)
            given = json.loads((folder / STATEMENT).read_text(encoding="utf-8"))
        except (StepflowError, OSError, ValueError, RecursionError) as error:
            evidence.add("journal", f"{folder.name}: {error}", fine="", hint="Give the run folder as the run left it.")
            return evidence
        if statement is None:
            problem = "the run of this journal did not complete, or pushed nothing"
            evidence.add("journal", problem, fine="", hint="Give the folder of the run that pushed the commits.")
            return evidence
        derived: JsonObject = json.loads(json.dumps(statement))
        _check_journal(evidence, given, derived)
        if evidence.failures:
            # What else such a statement says is worth nothing.
            return evidence
        source = "" if self.asked.is_unsigned else self._check_signature(evidence, journal, derived)
        self._check_subject(evidence, derived)
        self._check_definition(evidence, journal, source)
        if not evidence.failures:
            evidence.covered = self._commits_of(derived)
        return evidence

    def _check_signature(self, evidence: _Evidence, journal: Path, derived: JsonObject) -> str:
        """Check who signed, and return the commit that the signing job was started on."""
        from stepflow.boundary.repository_reader import read_signatures  # noqa: PLC0415 - as the reader

        asked = self.asked
        if not self.host:
            server = host_of(self.request.inputs.github_server_url)
            problem = f"{server} is a GitHub Enterprise Server, where GitHub signs nothing"
            evidence.add(SIGNATURE, problem, fine="", hint="Add --unsigned to check everything else.")
            return ""
        words = ["--signer-workflow", f"{self.host}/{asked.signer}"]
        words += ["--predicate-type", PREDICATE_TYPE, *(["--bundle", str(asked.bundle)] if asked.bundle else [])]
        words += ["--custom-trusted-root", str(asked.trusted_root)] if asked.trusted_root else []
        signed: tuple[SignedStatement, ...] = ()
        errors = list[StepflowError]()
        # A run that was resumed after its repository was renamed is signed under the new name.
        for name in dict.fromkeys((self._name_in(derived), self.request.repository)):
            policy = ("--repo", name, *words)
            try:
                signed = read_signatures(journal, policy, program=asked.gh, host=self.host, token=self.token)
                break
            except StepflowError as error:
                errors.append(error)
        else:
            hint = errors[0].hint or f"If another workflow than {self.asked.signer} signs here, name it with --signer."
            evidence.add(SIGNATURE, errors[0].message, fine="", hint=hint)
            return ""
        problems = [self._signature_problem(each, derived, repository=name) for each in signed]
        if "" in problems:
            valid = signed[problems.index("")]
            evidence.add(SIGNATURE, "", fine=f"by {valid.signer.removeprefix(f'https://{self.host}/')}")
            return valid.source_commit
        evidence.add(SIGNATURE, next(iter(problems), "there is none"), fine="", hint=_DO_NOT_TRUST)
        return ""

    def _signature_problem(self, signed: SignedStatement, derived: JsonObject, *, repository: str) -> str:
        address = f"https://{self.host}/{repository}"
        branch = f"refs/heads/{self.reader.default_branch()}"
        signer, _, _ = signed.signer.rpartition("@")
        if signed.source.casefold() != address.casefold():
            return f"it was signed for {signed.source}"
        if signer.casefold() != f"https://{self.host}/{self.asked.signer}".casefold():
            return f"it was signed by {signer}"
        if signed.source_ref != branch:
            return f"its job was started on {signed.source_ref}, where the pull request may have changed the workflow"
        if differing := [*find_differences(signed.statement, derived)]:
            return f"what was signed differs from what the journal says: {name_some(differing)}"
        return ""

    def _name_in(self, derived: JsonObject) -> str:
        """Return the repository's name as the statement has it, if GitHub leads from that to the repository, which was
        renamed or transferred since. Otherwise return its present name."""
        present, said = self.request.repository, str(value_at(derived, f"predicate.{_FACTS['repository']}"))
        is_former = said.casefold() != present.casefold() and self.reader.has_had(said)
        return said if is_former else present

    def _check_subject(self, evidence: _Evidence, derived: JsonObject) -> None:
        """Check that the statement is about this pull request, as it is on GitHub."""
        said = {name: value_at(derived, f"predicate.{path}") for name, path in _FACTS.items()}
        pull, expected = self.pull, self.request.repository
        now = {
            "repository": (str(said["repository"]).casefold(), self._name_in(derived).casefold()),
            # Where the token could not open one, a person did.
            "pull request": (said["number"] or pull.number, pull.number),
            "branch": (said["branch"], pull.head),
            "branch's repository": (pull.head_repository.casefold(), expected.casefold()),
        }
        others = [f"{name} {before}, not {after}" for name, (before, after) in now.items() if before != after]
        about = f"{said['repository']}#{said['number']}, branch {said['branch']}"
        evidence.add(
            "pull request", f"it is about another one: {'; '.join(others)}" if others else "", fine=about, hint=_OTHER
        )
        commit = next((each for each in self.commits if each.oid == said["commit"]), None)
        problem = "" if commit else f"{said['commit']} is not in the pull request (any more)"
        if commit and commit.tree != said["tree"]:
            problem = f"GitHub has the tree {commit.tree}, and the run pushed {said['tree']}"
        evidence.add("commit", problem, fine=f"{said['commit']}, tree {said['tree']}", hint=_DO_NOT_TRUST)
        base, known = str(said["base"]), [each.oid for each in self.commits]
        is_known = base in known or self.reader.contains(pull.base, base)
        problem = "" if is_known else f"the run began at {base}, which {pull.base} does not have"
        evidence.add("base", problem, fine=f"began at {base}", hint=_DO_NOT_TRUST)
        unchecked = "" if said["validated"] is True else "not all validators passed"
        evidence.add("validators", "", fine="all passed", warning=unchecked)

    def _check_definition(self, evidence: _Evidence, journal: Path, source: str) -> None:
        """Check that the agent's definition is the one in the repository. A follow-up takes it from the default branch,
        not from the pull request that it continues."""
        started = next(entry.event for entry in iter_journal(journal) if isinstance(entry.event, RunStarted))
        commit = started.base_commit
        if started.follow_up:
            commit = source or head_commit(self.request.checkout)
        problem, hint = "", _DO_NOT_TRUST
        try:
            digest = self._digest_at(commit, started)
            if digest != started.definition_digest:
                problem = f"at {commit[:12]} it has the digest {digest}, and the run had {started.definition_digest}"
                if started.stepflow_version != version("stepflow"):
                    hint = f"A part of it may be stepflow's: compare with version {started.stepflow_version}."
        except StepflowError as error:
            problem, hint = error.message, f"Fetch the commit into this clone: git fetch origin {commit}"
        evidence.add("definition", problem, fine=f"{started.agent} as at {commit[:12]}", hint=hint)

    def _digest_at(self, commit: str, started: RunStarted) -> str:
        if not AGENT_NAME.fullmatch(started.agent) or not COMMIT.fullmatch(commit):
            raise InputError("It names no agent of a repository, or no commit.")
        folder = self.scratch / f"files-{commit}"
        if not folder.exists():
            write_files_of(commit, self.request.checkout, folder)
        options = {name: started.options[name] for name in _OF_DEFINITION if started.options.get(name) is not None}
        trigger = Trigger(agent=started.agent, private=started.started_by.private)
        request = replace(self.request, root=folder, inputs=read_inputs(options), trigger=trigger)
        return load_requested(request).digest

    def _commits_of(self, derived: JsonObject) -> frozenset[str]:
        """Return the commits of the pull request between the one that the run began at and the one that it pushed, by
        their parents: the order in which GitHub lists them may be anybody's."""
        base, pushed = (str(value_at(derived, f"predicate.{_FACTS[name]}")) for name in ("base", "commit"))
        return self._ancestors(pushed) - self._ancestors(base)

    def _ancestors(self, commit: str) -> frozenset[str]:
        """Return the commits of the pull request that lead to this one, and itself."""
        parents, found, waiting = {each.oid: each.parents for each in self.commits}, set[str](), [commit]
        while waiting:
            oid = waiting.pop()
            if oid in parents and oid not in found:
                found.add(oid)
                waiting += parents[oid]
        return frozenset(found)

    def add_coverage(self, evidence: _Evidence, found: list[_Evidence]) -> None:
        """Check that each commit of the pull request is covered by a statement."""
        covered = {commit for each in found for commit in each.covered}
        left = [each for each in self.commits if each.oid not in covered]
        named = name_some([f"{each.oid[:12]} ({each.message.partition(chr(10))[0]})" for each in left])
        problem = f"{count(len(left), 'commit')} not covered by a valid statement: {named}" if left else ""
        hint = "Somebody else made them, or the artifact of their run is gone: review them, or give its run folder."
        hint = "" if evidence.failures else hint
        if self.pull.head_commit not in [each.oid for each in self.commits]:
            problem = problem or f"the newest commit, {self.pull.head_commit}, is not among the listed ones"
        evidence.add("coverage", problem, fine=count(len(self.commits), "commit"), hint=hint)

    def add_merge(self, evidence: _Evidence) -> None:
        """Say what the base got of a merged pull request. Squashing and rebasing write commits that no run pushed."""
        pull = self.pull
        if not (pull.merged_at and pull.merge):
            return
        is_whole = pull.merge == pull.head_commit or pull.head_commit in self.reader.commit(pull.merge).parents
        rewritten = f"it was squashed or rebased: no statement covers {pull.merge}, the commit on {pull.base}"
        fine = f"{pull.merge} on {pull.base} has these commits"
        evidence.add("merge", "", fine=fine, warning="" if is_whole else rewritten)


#: Where the statement says what is compared with GitHub.
_FACTS = {
    "repository": "run.repository",
    "number": "run.pullRequest",
    "branch": "commit.branch",
    "commit": "commit.gitCommit",
    "tree": "commit.gitTree",
    "base": "commit.base.gitCommit",
    "validated": "result.validated",
}
_DO_NOT_TRUST = "Do not merge on the word of this statement."
_OTHER = "Give the statement of the run that opened this pull request."


def _check_journal(evidence: _Evidence, given: JsonValue, derived: JsonObject) -> None:
    """Check that the statement is what the journal says, field by field."""
    differing = [*find_differences(given, derived)]
    versions, own = value_at(derived, "predicate.run.stepflow"), version("stepflow")
    hint = "The journal or the statement was changed."
    if isinstance(versions, list) and own not in versions:
        hint += f" Or the statement has fields of another version: verify with stepflow {versions[-1]}."
    parts = value_at(derived, "predicate.journal.parts")
    lines = [each["lines"] for each in parts if isinstance(each, dict)] if isinstance(parts, list) else []
    resumed = f"; the run was resumed: lines 1 to {lines[-2]} came from its run folder" if len(lines) > 1 else ""
    fine = f"{lines[-1]} lines, and the statement follows from them{resumed}"
    problem = f"the statement differs from what the journal says: {name_some(differing)}" if differing else ""
    evidence.add("journal", problem, fine=fine, hint=hint, warning=fine if resumed else "")


def artifact_name(commit: str) -> str:
    """Return the name of the artifact of the run that pushed this commit."""
    return f"stepflow-{commit}"


def unpack_artifact(packed: bytes, sizes: Mapping[str, int], folder: Path) -> bool:
    """Write these files of the artifact into the folder, each of at most so many bytes, and return False if it does not
    have them all. Anybody's workflow may have made it, so nothing else of it is unpacked."""
    try:
        with zipfile.ZipFile(BytesIO(packed)) as archive:
            return all(_unpack_file(archive, name, folder / name, size) for name, size in sizes.items())
    except (zipfile.BadZipFile, KeyError, RuntimeError, ValueError, OSError, EOFError, zlib.error, lzma.LZMAError):
        return False


def _unpack_file(archive: zipfile.ZipFile, name: str, path: Path, largest: int) -> bool:
    with archive.open(name) as packed, path.open("wb") as file:
        size = 0
        while chunk := packed.read(_CHUNK):
            size += len(chunk)
            if size > largest:
                return False
            file.write(chunk)
    return True
