"""The issue of a run: its text, comments and images, and whether the actor may start a run at all."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from stepflow.boundary.github_types import IssueNow
from stepflow.boundary.image_addresses import attached_id, image_hosts, signed_addresses
from stepflow.boundary.settings import check_actor
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.conversation import inspect_image
from stepflow.domain.run import LARGEST_IMAGES, MOST_IMAGES, ImageProblem, Issue, IssueImage, describe_unseen
from stepflow.domain.text import RemovedPiece, Spent, TextRemoved
from stepflow.domain.words import Permission, Provider
from stepflow.engine.prompt.sanitize import SanitizedText, sanitize, sanitize_line
from stepflow.errors import BoundaryError, InputError, Refused, StepflowError
from stepflow.model.scenario import Scenario
from stepflow.run.request import RunRequest, boundary_settings
from stepflow.run.start.server import check_addresses
from stepflow.run.start.trigger import Skip

if TYPE_CHECKING:
    from stepflow.boundary.github_api import GitHub, GitHubReader
    from stepflow.boundary.repository_reader import RepositoryReader

G = TypeVar("G", bound="GitHub")

#: A long discussion is cut to its newest comments: at most this many, by this many people, with this many characters.
MOST_REMARKS = 100
MOST_AUTHORS = 20
LONGEST_DISCUSSION = 20_000
THREE_WAYS = (
    "Give the text with the input `issue-text`, or let it be read with `read-token: ${{ github.token }}` and the "
    "permission `issues: read`, or start the agent by its label, whose event carries the text "
    "(in a terminal: `--event`)."
)

#: Pieces of removed text that the journal keeps, and characters of each.
MOST_PIECES = 100
LONGEST_PIECE = 1000
NO_DISCUSSION = SanitizedText()


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is known about the issue of a run."""

    issue: Issue | None = None
    #: The comments of people with write access, as they appear on the page; empty without `read-token`.
    discussion: SanitizedText = field(default_factory=SanitizedText)
    #: Whether the issue was read from GitHub, and then whether it is locked.
    fetched: bool = False
    locked: bool | None = None
    #: Warnings about facts that could not be found out.
    notes: tuple[str, ...] = ()
    #: The cost of other runs on the issue; None if nobody looked.
    spent: Spent | None = None


def issue_number(request: RunRequest, scenario: Scenario | None) -> int | None:
    """Return the number of the issue: from the trigger, otherwise from the scenario."""
    if request.trigger.issue_number is not None:
        return request.trigger.issue_number
    return scenario.issue.number if scenario and scenario.issue else None


def follow_repository(request: RunRequest) -> RunRequest:
    """Return the request for the repository under its present name, which it may have got after the event, with the
    facts that decide whether a run can write there. Without `read-token` nobody is asked."""
    token = request.inputs.read_token
    if token is None or not request.repository:
        return request
    with closing(github_reader(request, token.get_secret_value())) as reader, refused_if_silent():
        found = reader.locate(request.repository_id)
    trigger = replace(request.trigger, archived=found.archived)
    return replace(request, repository=found.full_name, trigger=trigger)


def read_subject(request: RunRequest, scenario: Scenario | None) -> Subject:
    """Read everything about the issue that the inputs give access to.

    Raises `Refused` if the actor may not write, `InputError` if the issue's text cannot be read.
    """
    known = _known_issue(request, scenario)
    number = issue_number(request, scenario)
    token = request.inputs.read_token
    if token is not None:
        with closing(github_reader(request, token.get_secret_value())) as reader, refused_if_silent():
            return _read(reader, request, known, number)
    _demand_write_access_without_read_token(request)
    if known or number is None:
        return Subject(issue=known)
    if request.inputs.model.provider is Provider.SCRIPTED:
        # Nobody reads the text in a rehearsal, and a rehearsal needs no network.
        return Subject(issue=Issue(number=number), notes=(f"The text of issue #{number} is not known. {THREE_WAYS}",))
    return _read_anonymously(request, number)


def read_again(request: RunRequest, issue: Issue | None, approver: Permission = Permission.NONE) -> Subject:
    """Return the subject of a resumed run: the issue as that run saw it. The actor's permission (also to approve, for
    an `approver`) and the cost of other runs on the issue are read again. `request` has the run's own id."""
    token = request.inputs.read_token
    if token is None:
        _demand_write_access_without_read_token(request, approver)
        return Subject(issue=issue)
    with closing(github_reader(request, token.get_secret_value())) as reader, refused_if_silent():
        _demand_write_access(reader, request, approver)
        return Subject(issue=issue, spent=_read_spent(reader, request, issue))


def skip_stranger(request: RunRequest, load: Callable[[RunRequest], AgentDefinition]) -> Skip | None:
    """Ask GitHub about an actor whom the event does not show as a member. Returns None if they may start a run, as
    anybody may if the agent, which is then loaded, says so."""
    trigger, token = request.trigger, request.inputs.read_token
    unproven = trigger.unproven
    if not unproven:
        return None
    if token is None:
        return Skip(reason=unproven)
    with closing(github_reader(request, token.get_secret_value())) as reader, refused_if_silent():
        refusal = check_actor(reader, boundary_settings(request))
    if refusal is None or (trigger.start_kind and trigger.reply is None and _lets_anyone_start(request, load)):
        return None
    return Skip(reason=f"{unproven.partition(';')[0]}. {refusal}")


def _lets_anyone_start(request: RunRequest, load: Callable[[RunRequest], AgentDefinition]) -> bool:
    """Return whether the requested agent says so. One that cannot be loaded does not: no stranger makes a job fail."""
    try:
        return load(request).anyone_may_start
    except StepflowError:
        return False


def _known_issue(request: RunRequest, scenario: Scenario | None) -> Issue | None:
    trigger, text = request.trigger, request.inputs.issue_text
    if trigger.issue is not None:
        return trigger.issue
    if trigger.issue_number is not None and text:
        return Issue(number=trigger.issue_number, body=text)
    rehearsed = scenario.issue.to_issue() if scenario and scenario.issue else None
    return rehearsed if rehearsed and trigger.issue_number in (None, rehearsed.number) else None


def github_reader(request: RunRequest, token: str | None) -> GitHubReader:
    """Open a reader, which the caller closes. Without a token it reads public data only."""
    from stepflow.boundary.github_api import GitHubReader  # noqa: PLC0415 - costs time that most runs need not pay

    return open_github(GitHubReader, request, token)


def repository_reader(request: RunRequest, token: str | None) -> RepositoryReader:
    """Open the same for what a repository has beside the run's own issue."""
    from stepflow.boundary.repository_reader import RepositoryReader  # noqa: PLC0415 - most runs read nothing else

    return open_github(RepositoryReader, request, token)


def open_github(kind: type[G], request: RunRequest, token: str | None) -> G:
    """Open GitHub for reading or writing; the caller closes it. Raises `InputError` if the token would be sent to the
    wrong server."""
    check_addresses(request.inputs)
    if not request.repository:
        raise InputError("It is not known which repository to read.", hint="Set GITHUB_REPOSITORY to owner/name.")
    return kind(
        api_url=request.inputs.github_api_url,
        repository=request.repository,
        token=token,
        redactor=request.redactor,
        retry_policy=request.retry_policy,
        connection=request.proxy_config.connection_to(request.inputs.github_api_url),
    )


@contextmanager
def refused_if_silent() -> Iterator[None]:
    """Refuse the run if GitHub does not answer, since the actor's permission is then unknown."""
    try:
        yield
    except Refused:
        raise
    except BoundaryError as exc:
        raise Refused(f"No run was started: {exc.message}", hint=exc.hint or "Start the run again later.") from exc


def _demand_write_access_without_read_token(request: RunRequest, approver: Permission = Permission.NONE) -> None:
    """Check the actor without `read-token`, before the model costs anything: the event must prove write access, since
    the token that writes asks nothing before the boundary."""
    inputs = request.inputs
    demanded = max(inputs.start.min_permission, approver, key=lambda permission: permission.rank)
    is_proven = request.trigger.by_writer and demanded.rank <= Permission.WRITE.rank
    if is_proven or (inputs.model.provider is Provider.SCRIPTED and approver is Permission.NONE):
        return
    actor = request.trigger.actor
    who = f"{actor}, who triggered the run," if actor else "the person who triggered the run"
    raise Refused(
        f"No run was started: there is no read-token to ask whether {who} has the permission '{demanded}', and the "
        "event does not show it.",
        hint="Give `read-token: ${{ github.token }}`; at a terminal, set STEPFLOW_READ_TOKEN and GITHUB_ACTOR.",
    )


def _demand_write_access(reader: GitHubReader, request: RunRequest, approver: Permission = Permission.NONE) -> None:
    refusal = check_actor(reader, boundary_settings(request), approver)
    if refusal:
        raise Refused(refusal)
    demand_scopes(reader, request)


def demand_scopes(reader: GitHubReader, request: RunRequest) -> None:
    """Raise `InputError` if GitHub's last response shows that the token that writes lacks the scope to do so."""
    if request.reads_with_writing_token and (problem := reader.scope_problem(private=request.trigger.private)):
        raise InputError(problem, hint="Set `github-token` to a token with the scope `repo`, or to the job's own.")


def _read(reader: GitHubReader, request: RunRequest, known: Issue | None, number: int | None) -> Subject:
    _demand_write_access(reader, request)
    subject = Subject(issue=known)
    if known is None and number is not None:
        subject = _subject_of(reader.issue(number))
    if subject.issue is None:
        return subject
    return replace(
        subject,
        discussion=_discussion(reader, request, subject.issue.number),
        spent=_read_spent(reader, request, subject.issue),
    )


def _read_spent(reader: GitHubReader, request: RunRequest, issue: Issue | None) -> Spent | None:
    limited = request.inputs.limits.usd_per_issue is not None
    return reader.spent(issue.number, run=request.run_id) if issue and limited else None


def _read_anonymously(request: RunRequest, number: int) -> Subject:
    if request.trigger.private or not request.repository:
        raise InputError(f"The text of issue #{number} is not known.", hint=THREE_WAYS)
    try:
        with closing(github_reader(request, None)) as reader:
            now = reader.issue(number)
    except (BoundaryError, InputError) as exc:
        raise InputError(
            f"The text of issue #{number} is not known, and without a token it cannot be read: {exc.message}",
            hint=THREE_WAYS,
        ) from exc
    return _subject_of(now)


def _subject_of(now: IssueNow) -> Subject:
    if now.pull_request:
        raise InputError(f"#{now.number} is a pull request; agents run on issues.", hint="Correct the input issue.")
    return Subject(issue=now.as_subject(), fetched=True, locked=now.locked)


class Writers:
    """The people with write access. GitHub is asked about each person once, and about `MOST_AUTHORS` at most."""

    def __init__(self, reader: GitHubReader) -> None:
        self._reader = reader
        self._known: dict[str, bool] = {}

    def __contains__(self, login: object) -> bool:
        if not isinstance(login, str) or not login:
            return False
        if login not in self._known and len(self._known) < MOST_AUTHORS:
            self._known[login] = Permission(self._reader.permission(login)).rank >= Permission.WRITE.rank
        return self._known.get(login, False)


def _discussion(reader: GitHubReader, request: RunRequest, number: int) -> SanitizedText:
    """Return the newest comments of people with write access, oldest first, each below a line that nobody can forge;
    also those of the person who started the run, if the agent lets anyone do so."""
    starter = request.trigger.actor if request.anyone_may_start else ""
    mark, budget = new_mark(), LONGEST_DISCUSSION
    comments: list[SanitizedText] = []
    writers = Writers(reader)
    for remark in reader.remarks(number, most=MOST_REMARKS):
        if remark.author != starter and remark.author not in writers:
            continue
        author = sanitize_line(remark.author, "comment")
        comment = sanitize(remark.body.strip(), f"comment by {author.text}")
        quoted = quote(replace(author, text=f"{author.text}, {remark.at:%Y-%m-%d %H:%M} UTC"), comment, mark)
        if len(quoted.text) > budget:
            rest = "[the rest of this comment, and older ones, are left out]"
            comments.append(replace(quoted, text=f"{quoted.text[:budget]}\n{rest}"))
            break
        comments.append(quoted)
        budget -= len(quoted.text)
    if not comments:
        return NO_DISCUSSION
    who = f"people with write access{f' and {starter}' if starter else ''}"
    heading = f"Comments by {who}, oldest first; each begins with a line that contains {mark}."
    return join_texts((SanitizedText(text=heading), *reversed(comments)))


def new_mark() -> str:
    """Return a random word that marks the headings between quoted texts, so that no text can fake one."""
    return secrets.token_hex(4)


def quote(heading: SanitizedText, quoted: SanitizedText, mark: str) -> SanitizedText:
    """Put a marked heading above somebody's text, and remove the mark from the text itself."""
    text = re.sub(mark, "[mark removed]", quoted.text, flags=re.IGNORECASE)
    return replace(quoted, text=f"--- {mark}: {heading.text}\n{text}", removed=(*heading.removed, *quoted.removed))


def join_texts(texts: Iterable[SanitizedText]) -> SanitizedText:
    """Join texts with blank lines between them, without the empty ones."""
    texts = tuple(texts)
    return SanitizedText(
        text="\n\n".join(each.text for each in texts if each.text),
        removed=tuple(piece for each in texts for piece in each.removed),
        images=tuple(image for each in texts for image in each.images),
    )


def issue_text(
    issue: Issue | None, discussion: SanitizedText = NO_DISCUSSION, *, kind: str = "Issue", otherwise: str = ""
) -> SanitizedText:
    """Return the issue's `kind`, number, title, author, body and discussion as one text, or `otherwise` without an
    issue. The prompt marks it as data."""
    if issue is None:
        return sanitize(otherwise.strip(), "issue-text")
    title, author = sanitize_line(issue.title, "title"), sanitize_line(issue.author, "author")
    body = sanitize(issue.body, "body")
    heading = f"{kind} #{issue.number}{': ' + title.text if title.text else ''}"
    by = f"\nWritten by {author.text}" if author.text else ""
    return SanitizedText(
        text=f"{heading}{by}\n\n{body.text}\n\n{discussion.text}".strip(),
        removed=(*title.removed, *author.removed, *body.removed, *discussion.removed),
        images=(*body.images, *discussion.images),
    )


def removal_event(text: SanitizedText) -> TextRemoved | None:
    """Return the event that records removed text; None if nothing was removed."""
    if not text.removed:
        return None
    pieces = (
        RemovedPiece(kind=piece.kind, where=piece.where, text=piece.text[:LONGEST_PIECE])
        for piece in text.removed[:MOST_PIECES]
    )
    return TextRemoved(count=len(text.removed), pieces=tuple(pieces))


#: Characters of an address that are kept.
LONGEST_ADDRESS = 300


def read_images(
    request: RunRequest, issue: Issue | None, context: SanitizedText
) -> tuple[SanitizedText, tuple[IssueImage, ...]]:
    """Read the images of the context, each once, and add a note about those that the model does not see to the
    context. A scripted model gets no images."""
    if request.inputs.model.provider is Provider.SCRIPTED:
        return context, ()
    images = _read_addresses(request, issue, context.images)
    unseen = describe_unseen(images)
    return join_texts((context, SanitizedText(text=f"[{unseen}]"))) if unseen else context, images


def _read_addresses(request: RunRequest, issue: Issue | None, addresses: Iterable[str]) -> tuple[IssueImage, ...]:
    hosts, token = image_hosts(request.inputs.github_server_url), request.inputs.read_token
    ids = {address: attached_id(address, hosts) for address in addresses}
    if token is None or not any(ids.values()):
        return tuple(
            _unseen_image(each, ImageProblem.NO_TOKEN if ids[each] else ImageProblem.ELSEWHERE) for each in ids
        )
    with closing(github_reader(request, token.get_secret_value())) as reader:
        numbers = [issue.number] if issue else []
        numbers += [request.follow_up.pull_request] if request.follow_up else []
        pages = list[str]()
        for number in numbers:
            # Without a signed address, an image may still be public.
            with suppress(BoundaryError, InputError):
                pages += reader.rendered(number, most=MOST_REMARKS)
        signed = signed_addresses(pages, hosts)
        return tuple(_read_all(reader, ids, signed, hosts))


def _read_all(
    reader: GitHubReader, ids: Mapping[str, str], signed: Mapping[str, str], hosts: frozenset[str]
) -> Iterator[IssueImage]:
    count, bytes_left = 0, LARGEST_IMAGES
    for address, id_ in ids.items():
        if not id_ or count == MOST_IMAGES:
            yield _unseen_image(address, ImageProblem.TOO_MANY if id_ else ImageProblem.ELSEWHERE)
            continue
        count += 1
        data = reader.image(signed.get(id_, address), hosts=hosts)
        if isinstance(data, ImageProblem):
            image = _unseen_image(address, data)
        else:
            image = _decode_image(address, data, bytes_left=bytes_left)
        bytes_left -= len(data) if image.data else 0
        yield image


def _decode_image(address: str, data: bytes, *, bytes_left: int) -> IssueImage:
    """Return the image, or its problem if the data is no image or larger than `bytes_left`."""
    facts = inspect_image(data)
    if isinstance(facts, ImageProblem):
        return _unseen_image(address, facts)
    if len(data) > bytes_left:
        return _unseen_image(address, ImageProblem.TOO_MUCH)
    type_, width, height = facts
    encoded = base64.b64encode(data).decode()
    return IssueImage(address=_without_query(address), type=type_, width=width, height=height, data=encoded)


def _unseen_image(address: str, problem: ImageProblem) -> IssueImage:
    return IssueImage(address=_without_query(address), problem=problem)


def _without_query(address: str) -> str:
    """Cut the query off an address, since it may hold a signature."""
    return address.partition("?")[0][:LONGEST_ADDRESS]
