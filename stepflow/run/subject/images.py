"""The images that the issue and the comments on it show: each read once, before the run, for the model to see."""

from __future__ import annotations

import base64
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from stepflow.boundary.images import attached_id, image_hosts, signed_addresses
from stepflow.domain.image_file import inspect_image
from stepflow.domain.run import LARGEST_IMAGES, MOST_IMAGES, ImageProblem, IssueImage, describe_unseen
from stepflow.domain.words import Provider
from stepflow.engine.prompt.intake.sanitize import SanitizedText
from stepflow.errors import BoundaryError, InputError
from stepflow.run.subject.issue import MOST_REMARKS, github_reader, join_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from stepflow.boundary.github_api import GitHubReader
    from stepflow.domain.run import Issue
    from stepflow.run.request import RunRequest

#: So many characters of an address are kept.
LONGEST_ADDRESS = 300


def read_images(
    request: RunRequest, issue: Issue | None, context: SanitizedText
) -> tuple[SanitizedText, tuple[IssueImage, ...]]:
    """The images of the context, each once, and the context with a word about those that the model does not see. A
    scripted model looks at none."""
    if request.inputs.provider is Provider.SCRIPTED:
        return context, ()
    images = _read(request, issue, context.images)
    unseen = describe_unseen(images)
    return join_texts((context, SanitizedText(text=f"[{unseen}]"))) if unseen else context, images


def _read(request: RunRequest, issue: Issue | None, addresses: Iterable[str]) -> tuple[IssueImage, ...]:
    hosts, token = image_hosts(request.inputs.github_server_url), request.inputs.read_token
    ids = {address: attached_id(address, hosts) for address in addresses}
    if token is None or not any(ids.values()):
        return tuple(_unseen(each, ImageProblem.NO_TOKEN if ids[each] else ImageProblem.ELSEWHERE) for each in ids)
    with closing(github_reader(request, token.get_secret_value())) as reader:
        numbers = [issue.number] if issue else []
        numbers += [request.follow_up.pull_request] if request.follow_up else []
        signed = signed_addresses(_pages(reader, numbers), hosts)
        return tuple(_read_all(reader, ids, signed, hosts))


def _pages(reader: GitHubReader, numbers: Iterable[int]) -> Iterator[str]:
    """What GitHub shows under these numbers, as far as it can be had: an image that nobody signs may be open to all."""
    for number in numbers:
        with suppress(BoundaryError, InputError):
            yield from reader.rendered(number, most=MOST_REMARKS)


def _read_all(
    reader: GitHubReader, ids: Mapping[str, str], signed: Mapping[str, str], hosts: frozenset[str]
) -> Iterator[IssueImage]:
    asked, left = 0, LARGEST_IMAGES
    for address, id_ in ids.items():
        if not id_ or asked == MOST_IMAGES:
            yield _unseen(address, ImageProblem.TOO_MANY if id_ else ImageProblem.ELSEWHERE)
            continue
        asked += 1
        data = reader.image(signed.get(id_, address), hosts=hosts)
        image = _unseen(address, data) if isinstance(data, ImageProblem) else _seen(address, data, left=left)
        left -= len(data) if image.data else 0
        yield image


def _seen(address: str, data: bytes, *, left: int) -> IssueImage:
    """The image, unless its file is none or is larger than what is `left`, in bytes."""
    found = inspect_image(data)
    if isinstance(found, ImageProblem):
        return _unseen(address, found)
    if len(data) > left:
        return _unseen(address, ImageProblem.TOO_MUCH)
    type_, width, height = found
    encoded = base64.b64encode(data).decode()
    return IssueImage(address=_shown(address), type=type_, width=width, height=height, data=encoded)


def _unseen(address: str, problem: ImageProblem) -> IssueImage:
    return IssueImage(address=_shown(address), problem=problem)


def _shown(address: str) -> str:
    """The address without its query, which may hold a signature."""
    return address.partition("?")[0][:LONGEST_ADDRESS]
