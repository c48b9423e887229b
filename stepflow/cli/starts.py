"""What starts a workflow, as far as its conditions tell, and what would start another one with it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

#: A condition for one agent names it; one for any agent does not.
_LABEL = re.compile(
    r"github\.event\.label\.name\s*==\s*'agent:([\w-]+)'|startsWith\(github\.event\.label\.name,\s*'agent:'\)"
)
_COMMENT = re.compile(r"(?<!!)startsWith\(github\.event\.comment\.body,\s*'/stepflow(?: run ([\w-]+))?'\)")
_LEFT_OUT = re.compile(r"github\.event\.label\.name\s*!=\s*'agent:([\w-]+)'")
_EVENT = re.compile(r"^[ \t]*(issues|pull_request|pull_request_target|issue_comment):", re.MULTILINE)
_ON_COMMENT = "issue_comment"
_ANY = ""


def starts_of(text: str) -> set[tuple[str, str]]:
    """Return the events that start a workflow, each with an agent; without one, any agent's label or comment does."""
    labels, comments = ({match[1] or _ANY for match in form.finditer(text)} for form in (_LABEL, _COMMENT))
    return {
        (event, agent) for event in _EVENT.findall(text) for agent in (comments if event == _ON_COMMENT else labels)
    }


def started_together(path: str, texts: Mapping[str, str], agents: Collection[str]) -> Iterator[str]:
    """Yield what starts the workflow and another one, and how to prevent it. `texts` are all workflows by their paths,
    `agents` those at the repository's root."""
    own = starts_of(texts[path])
    for other in sorted(texts.keys() - {path}):
        shared = dict[str, set[str]]()
        for event, agent in own:
            for event_there, name in starts_of(texts[other]):
                if event == event_there and (agent == name or _ANY in (agent, name)):
                    shared.setdefault(agent or name, set()).add(event)
        for agent in sorted(shared.keys() - {*_LEFT_OUT.findall(texts[path] + texts[other])}):
            what = _what(shared[agent], agent)
            yield f"{what} starts {other} as well as {path}. {_remedy(agent, path, other, texts, agents)}"


def _what(events: Collection[str], agent: str) -> str:
    label, comment = f"the label agent:{agent or '…'}", f"the comment `/stepflow{agent and f' run {agent}'}`"
    words = [*([label] if {*events} - {_ON_COMMENT} else []), *([comment] if _ON_COMMENT in events else [])]
    text = " or ".join(words)
    return text[0].upper() + text[1:]


def _remedy(agent: str, path: str, other: str, texts: Mapping[str, str], agents: Collection[str]) -> str:
    if agent == _ANY:
        return "Keep one of the two."
    open_ones = [each for each in (path, other) if _ANY in {name for _, name in starts_of(texts[each])}]
    in_folder = any("working-directory:" in texts[each] for each in {path, other} - {*open_ones})
    if not open_ones or (in_folder and agent in agents):
        return "Give one of the two agents another name."
    condition = f"github.event.label.name != 'agent:{agent}'"
    condition += f" && !startsWith(github.event.comment.body, '/stepflow run {agent}')"
    return f"Leave it out of {open_ones[0]}: write its `if` as `{condition} && (…)`."
