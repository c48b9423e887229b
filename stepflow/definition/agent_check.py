"""`agent.json`, read and checked (registry.md §2).

Takes: the agent folder. Gives: `Agent`, what the file says with defaults, and its problems.
May touch: reads the agent folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepflow.definition.agent_file import AGENT_CODES, AgentFile, Runner
from stepflow.definition.agent_layout import report_old_names, to_runner_layout
from stepflow.definition.documents import read_object
from stepflow.definition.findings import did_you_mean, listed
from stepflow.definition.parameters import check_parameters
from stepflow.definition.run_variables import run_variables
from stepflow.definition.shapes import ShapeCodes, read_shape
from stepflow.definition.verdict import check_verdict
from stepflow.domain.tools import TOOL_SPECS_BY_NAME

if TYPE_CHECKING:
    from stepflow.definition.findings import FileFindings, Findings
    from stepflow.definition.folder import AgentFolder
    from stepflow.domain.definition import AgentVerdict
    from stepflow.domain.parameter import Parameter

AGENT_FILE = "agent.json"


@dataclass(frozen=True, kw_only=True)
class Agent:
    """What `agent.json` says. `known` is False when there is no readable one: then nothing is concluded from it."""

    known: bool
    found: FileFindings
    file: AgentFile = field(default_factory=AgentFile)
    verdict: AgentVerdict | None = None
    parameters: tuple[Parameter, ...] = ()

    @property
    def runner(self) -> Runner:
        """`runner` with its defaults."""
        return self.file.runner or Runner()


def read_agent(folder: AgentFolder, findings: Findings, *, allow_custom: bool, may_lack: bool) -> Agent:
    """Read and check `agent.json`; every problem goes to `findings`. With `may_lack` there may be no such file."""
    found = findings.of(AGENT_FILE)
    if may_lack and not folder.has(AGENT_FILE):
        return Agent(known=False, found=found)
    document = read_object(folder, found, what="agent definition")
    if document is None:
        return Agent(known=False, found=found)
    layout = to_runner_layout(document, found)
    found = findings.of(AGENT_FILE, layout.origin)
    report_old_names(layout.old_names, findings.of(AGENT_FILE))
    excused = frozenset({"/version", "/displayName", "/description", "/runner"}) if layout.flat else frozenset()
    codes = ShapeCodes(missing=AGENT_CODES.missing, wrong=AGENT_CODES.wrong, excused=excused)
    file = read_shape(AgentFile, layout.document, "", found, codes)
    runner = file.runner or Runner()
    verdict = None  # without a runner nothing says which verdict was meant
    if file.runner is not None or layout.flat:
        verdict = check_verdict(runner.verdict, found, folder=folder, allow_custom=allow_custom)
    reserved = run_variables(verdict.type if verdict else None)
    parameters = check_parameters(file.parameters, found, reserved=reserved)
    _check_names(file, folder, found)
    _check_tools(runner.boundaries.allowed_tools or (), found)
    return Agent(known=True, found=found, file=file, verdict=verdict, parameters=parameters)


def check_version(version: str | None, found: FileFindings) -> None:
    """Warn about a version that is not three numbers (SF308)."""
    if version and version.strip() and not re.fullmatch(r"\d+\.\d+\.\d+", version):
        message = f'"version" is "{version}", which is not of the form 1.2.3'
        found.add("SF308", "/version", message, "Write three numbers with dots between them.")


def _check_names(file: AgentFile, folder: AgentFolder, found: FileFindings) -> None:
    check_version(file.version, found)
    if file.name and file.name != folder.name:
        message = f'"name" is "{file.name}", but the folder is "{folder.name}"'
        fix = f'Rename the folder to "{file.name}", or write "{folder.name}" here and as "agentId" of the registry.'
        found.add("SF202", "/name", message, fix)


def _check_tools(tools: list[str] | tuple[str, ...], found: FileFindings) -> None:
    for index, tool in enumerate(tools):
        if tool != "*" and tool not in TOOL_SPECS_BY_NAME:
            message = f'the tool "{tool}" is not known and is ignored{did_you_mean(tool, TOOL_SPECS_BY_NAME)}'
            fix = f"The tools are {listed(tuple(TOOL_SPECS_BY_NAME))}."
            at = f"/runner/boundaries/allowedTools/{index}"
            found.add("SF210", at, message, fix)
