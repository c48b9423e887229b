"""Agents' scenarios played against what they expect (cli.md `stepflow rehearse`; action.md, mode `rehearse`).

Takes: a request that says where and how, agents. Gives: `Rehearsal`; each scenario is told of as it ends.
May touch: copies of the checkout; of the checkout itself only the scenario files, and only with `update`.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.definition.loading import validate_agent
from stepflow.definition.locate import find_agents
from stepflow.domain.problem import Severity
from stepflow.domain.rehearsal import Rehearsal
from stepflow.domain.words import Provider
from stepflow.errors import DefinitionError, InputError
from stepflow.run.accept import accept
from stepflow.run.checks import check_request
from stepflow.run.input_types import BoundaryMode
from stepflow.run.parts import toolbox_options
from stepflow.run.play import Listed, Played, play_scenario
from stepflow.run.trigger import Trigger
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.copies import commit_everything, copy_checkout, rehearsal_folder
from stepflow.sandbox.restore import credentials_away

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from stepflow.domain.rehearsal import Rehearsed
    from stepflow.run.cancel import Cancellation
    from stepflow.run.request import RunRequest


def rehearse_agents(
    request: RunRequest,
    names: Sequence[str],
    cancellation: Cancellation,
    *,
    update: bool = False,
    tell: Callable[[Rehearsed], None] = lambda _: None,
) -> Rehearsal:
    """Play every scenario of the named agents, or of all; `AGENT/SCENARIO` names one. `tell` hears of each at its end.

    Each is played in a copy of its own of the checkout as it is now. Raises `InputError` for names that are none, and
    `DefinitionError` with the problems of all the agents, before anything is played.
    """
    listed = list_scenarios(request.root, names)
    _demand_sound_agents(request, dict.fromkeys(each.agent for each in listed))
    check_request(_request_of(request, listed[0], root=request.root))
    played: list[Rehearsed] = []
    with _original(request, cancellation) as original:
        for number, each in enumerate(listed):
            came = _played(_request_of(request, each, root=original, first=number == 0), each, cancellation)
            played.append(accept(came, request.root) if update else came.rehearsed)
            tell(played[-1])
    rehearsed = {each.agent for each in listed}
    left = () if names else tuple(agent for agent in find_agents(request.root) if agent not in rehearsed)
    return Rehearsal(scenarios=tuple(played), unrehearsed=left)


def list_scenarios(root: Path, names: Sequence[str]) -> tuple[Listed, ...]:
    """The scenarios of these agents in the order of their names; raises `InputError` where there are none."""
    known = find_agents(root)
    listed = tuple(dict.fromkeys(each for name in names or known for each in _of_agent(root, name, known)))
    if not listed:
        raise InputError(
            f"No agent under {root / '.agent'} has a scenario.",
            hint="Write one as .agent/<agent>/scenarios/<name>.yaml; `stepflow run --record` writes one from a run.",
        )
    return listed


def _of_agent(root: Path, name: str, known: Sequence[str]) -> tuple[Listed, ...]:
    agent, slash, only = name.partition("/")
    if agent not in known:
        raise InputError(
            f'There is no agent "{agent[:100]}" under {root / ".agent"}.',
            hint=f"The agents of this repository: {', '.join(known)}." if known else "`stepflow init` writes one.",
        )
    files = sorted((root / ".agent" / agent / "scenarios").glob("*.yaml"))
    wanted = tuple(Listed(agent=agent, name=file.stem) for file in files if not slash or file.stem == only)
    if slash and not wanted:
        there = ", ".join(file.stem for file in files) or "none"
        raise InputError(f'Agent "{agent}" has no scenario "{only[:100]}".', hint=f"Its scenarios: {there}.")
    return wanted


def _demand_sound_agents(request: RunRequest, agents: Iterable[str]) -> None:
    inputs = request.inputs
    problems = [
        problem
        for agent in agents
        for problem in validate_agent(
            agent,
            root=request.root,
            allow_spec_violations=inputs.allow_spec_violations,
            allow_custom_verdict=inputs.allow_custom_verdict,
        )
        if problem.severity is Severity.ERROR
    ]
    if problems:
        raise DefinitionError("Nothing can be rehearsed: the agents have errors.", problems=tuple(problems))


def _request_of(request: RunRequest, listed: Listed, *, root: Path, first: bool = True) -> RunRequest:
    """A run that plays the scenario, plans and writes nothing. What a model or GitHub would need is left out, and
    packages are there once the first run has installed them."""
    played = {
        "agent": listed.agent,
        "provider": Provider.SCRIPTED,
        "scenario": listed.file,
        "boundary": BoundaryMode.DRY_RUN,
        "apt_packages": request.inputs.apt_packages if first else (),
        **dict.fromkeys(("issue", "issue_text", "record", "read_token", "budget_usd_per_issue")),
        "resume": "never",
    }
    return replace(
        request,
        run_id=f"{request.run_id}-{listed.agent}-{listed.name}",
        inputs=request.inputs.model_copy(update=played),
        trigger=Trigger(agent=listed.agent, actor="", actor_is_bot=False),
        root=root,
        folder=request.folder / listed.agent / listed.name,
        host_folder=f"{request.host_folder}/{listed.agent}/{listed.name}" if request.host_folder else "",
    )


@contextmanager
def _original(request: RunRequest, cancellation: Cancellation) -> Iterator[Path]:
    """The checkout as it is now, all of it committed, for copies without credentials. Signals stay held at the end."""
    with rehearsal_folder() as place:
        original = place / "checkout"
        copy_checkout(request.root, original)
        cancellation.hold()
        # The runner's own files of credentials are away as well, as long as any tool of a rehearsal lives.
        journals = request.restore_folder
        with credentials_away(original, request.runner_temp, request.login_files, journals=journals):
            copied = replace(request, root=original)
            with Toolbox.start(original, options=toolbox_options(copied)) as toolbox, cancellation.obeyed():
                commit_everything(toolbox)
            yield original


def _played(request: RunRequest, listed: Listed, cancellation: Cancellation) -> Played:
    with rehearsal_folder() as place:
        copy = place / "checkout"
        with cancellation.obeyed():
            copy_checkout(request.root, copy)
        played = play_scenario(replace(request, root=copy), listed, cancellation)
    cancellation.check()
    return played
