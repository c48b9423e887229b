"""Which pull requests were reverted and stayed so, by what commits and pull requests say of each other."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache

from stepflow.domain.reports.ledger import DAYS_TO_REVERT

_SHORTEST_OID = 7
_NUMBER, _OID = r"[0-9]{1,9}", rf"[0-9a-f]{{{_SHORTEST_OID},64}}"
_NAME = r"[\w.-]{1,100}/[\w.-]{1,100}"
#: A pull request or a commit, as people and GitHub name it.
_REFERENCE = (
    rf"(?:(?:PR|pull request) )?(?:{_NAME})?#{_NUMBER}\b|https?://[\w.:-]+/{_NAME}/pull/{_NUMBER}\b"
    rf"|https?://[\w.:-]+/{_NAME}/commit/{_OID}\b|commits? {_OID}\b|{_OID}\b"
)
#: The sentence in which a text says what it reverts, such as git's and GitHub's own. What follows shows whether that is
#: said, or spoken of.
_SENTENCE = re.compile(
    r"(?:^ {0,3}(?:[-*+] )?|(?<=[.!?] ))(?:This (?:(?:PR|pull request|change|commit|patch) )?)?"
    rf"(?:reverts?|reverting):? (?P<what>(?:{_REFERENCE})(?:(?:,? and |, )(?:{_REFERENCE}))*)"
    r"(?P<end>(?= *(?:[.,;(]|$))|(?! +(?:if|when|once|unless|is|are|was|means|counts)\b))",
    re.MULTILINE | re.IGNORECASE,
)
_ONE = re.compile(
    rf"(?P<oid>(?<![#\w/]){_OID}\b|(?<=/commit/){_OID})|(?:(?P<of>{_NAME})?#|(?P<at>{_NAME})/pull/)(?P<number>{_NUMBER})",
    re.IGNORECASE,
)
#: The subject of a commit or the title of a pull request that takes something back, or takes that back.
_SUBJECT = re.compile(r"(?:\w[\w-]*(?:\([^)]*\))?!?: )?(?P<verb>revert|reapply)\b", re.IGNORECASE)
_IN_SUBJECT = re.compile(rf"\(#({_NUMBER})\)")
#: What a text quotes or hides is not said by it.
_NOT_SAID = re.compile(
    r"<!--.*?(?:-->|\Z)|^ *(```|~~~).*?(?:^ *\1|\Z)|^ {0,3}>.*?$|`[^`\n]+`", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, kw_only=True)
class Landed:
    """A pull request that was merged into `branch`, or a commit there without one. `texts` are titles with bodies, and
    messages; `oids` the commits that it came as. An empty branch is one that is not known."""

    at: datetime
    number: int | None = None
    oids: tuple[str, ...] = ()
    branch: str = ""
    texts: tuple[str, ...]


def find_reverted(landed: Iterable[Landed], is_own: Callable[[str], bool]) -> frozenset[int]:
    """Return the numbers of the pull requests that something reverted within `DAYS_TO_REVERT` and that did not come
    back, as they do when that is reverted. `is_own` says whether a name is the repository's, or was before."""
    ordered = sorted(landed, key=lambda each: each.at)
    by_number = {each.number: place for place, each in enumerate(ordered) if each.number is not None}
    by_oid = defaultdict[str, list[tuple[str, int]]](list)
    for place, each in enumerate(ordered):
        for oid in each.oids:
            by_oid[oid[:_SHORTEST_OID]].append((oid, place))
    reverters = _find_reverters(ordered, by_number, by_oid, is_own)

    @cache
    def stands(place: int) -> bool:
        return not any(map(stands, reverters[place]))

    def is_reverted(place: int) -> bool:
        last = ordered[place].at + timedelta(days=DAYS_TO_REVERT)
        return any(ordered[each].at <= last and stands(each) for each in reverters[place])

    return frozenset(number for number, place in by_number.items() if is_reverted(place))


def _find_reverters(
    ordered: Sequence[Landed],
    by_number: Mapping[int, int],
    by_oid: Mapping[str, Sequence[tuple[str, int]]],
    is_own: Callable[[str], bool],
) -> Mapping[int, Sequence[int]]:
    """Return by the place of each what reverts it, all of which came later."""
    reverters = defaultdict[int, list[int]](list)
    for place, each in enumerate(ordered):
        said = {*_say_reverted(each.texts, by_number, by_oid, is_own)}
        verbs = {
            verb: {by_number[number] for number in numbers if number in by_number} for verb, numbers in _titles(each)
        }
        earlier = {before for before in said | verbs.get("revert", set()) if before < place}
        if not earlier:
            # Of what is applied again, every revert is taken back.
            earlier = {before for again in verbs.get("reapply", ()) for before in reverters[again] if before < place}
        for before in earlier:
            if not each.branch or not ordered[before].branch or each.branch == ordered[before].branch:
                reverters[before].append(place)
    return reverters


def _say_reverted(
    texts: Iterable[str],
    by_number: Mapping[int, int],
    by_oid: Mapping[str, Sequence[tuple[str, int]]],
    is_own: Callable[[str], bool],
) -> Iterator[int]:
    """Yield the places of what the sentences of these texts name."""
    for text in texts:
        said = _NOT_SAID.sub("", text.replace("\r\n", "\n"))
        for one in (one for sentence in _SENTENCE.finditer(said) for one in _ONE.finditer(sentence["what"])):
            if oid := one["oid"]:
                yield from (
                    place for whole, place in by_oid.get(oid[:_SHORTEST_OID].lower(), ()) if whole.startswith(oid)
                )
            elif (name := one["of"] or one["at"]) is None or is_own(name):
                yield from (place for place in (by_number.get(int(one["number"])),) if place is not None)


def _titles(landed: Landed) -> Iterator[tuple[str, set[int]]]:
    """Yield what titles and subjects do, and to which pull request: the last in parentheses that is not their own."""
    for text in landed.texts:
        subject = text.partition("\n")[0].strip()
        if verb := _SUBJECT.match(subject):
            numbers = [int(each) for each in _IN_SUBJECT.findall(subject) if int(each) != landed.number]
            yield verb["verb"].lower(), set(numbers[-1:])
