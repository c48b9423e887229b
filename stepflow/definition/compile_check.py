"""The check dialect compiled to the graph (registry.md §6 and §7).

Takes: the parsed registry and what `agent.json` says. Gives: `Graph`, or None with the problems reported.
May touch: reads the agent's prompts, and the schemas of its validation entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.definition.agent_check import check_version
from stepflow.definition.agent_layout import report_old_names
from stepflow.definition.check_file import CHECK_CODES, CheckRegistry
from stepflow.definition.check_names import name_handoff
from stepflow.definition.check_prompts import CheckPromptDesk, check_prompt_files
from stepflow.definition.check_steps import built_schema, check_check_steps
from stepflow.definition.compiled import Graph, check_agent_id, closure_action, format_retries, schema_desk
from stepflow.definition.graph import Named, check_entries, check_reached, reached_from
from stepflow.definition.registry_names import to_new_names
from stepflow.definition.run_variables import run_variables
from stepflow.definition.shapes import read_shape
from stepflow.definition.validator_entries import Declared
from stepflow.definition.validators import ValidationDesk, entry_of
from stepflow.definition.variables import supply_of
from stepflow.domain.check import Check
from stepflow.domain.definition import Step
from stepflow.domain.words import Dialect, StepKind, VerdictType
from stepflow.engine.prompt.variables import handoff_variable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepflow.definition.agent_check import Agent
    from stepflow.definition.check_names import Aliases
    from stepflow.definition.check_steps import CheckNode
    from stepflow.definition.compiled import LoadOptions
    from stepflow.definition.findings import FileFindings
    from stepflow.definition.folder import AgentFolder
    from stepflow.definition.graph import Entries
    from stepflow.definition.prompt_files import PromptFiles
    from stepflow.domain.definition import StepPrompt, ValidationEntry
    from stepflow.domain.json import JsonObject

#: Where errors change which step follows which.
_GRAPH_PLACES = r"/steps(/[^/]+(/check(/on(Pass|Fail)(/.*)?)?)?)?|/entryStep.*"


def compile_check_registry(
    document: JsonObject, found: FileFindings, *, agent: Agent, folder: AgentFolder, options: LoadOptions
) -> Graph | None:
    """Check a check registry in the order of registry.md §9 and compile it; None when the agent has any error."""
    renamed = to_new_names(document)
    found = found.findings.of(found.file, renamed.origin)
    report_old_names(renamed.old_names, found)
    registry = read_shape(CheckRegistry, renamed.document, "", found, CHECK_CODES)
    check_version(registry.version, found)
    check_agent_id(registry.agent_id, agent, found)
    nodes = check_check_steps(registry, found)
    compiler = _Compiler(registry=registry, agent=agent, folder=folder, found=found, options=options, nodes=nodes)
    return compiler.compile()


@dataclass(frozen=True, kw_only=True)
class _Compiler:
    """One compilation: the groups of checks after the steps, each with what it needs of the ones before."""

    registry: CheckRegistry
    agent: Agent
    folder: AgentFolder
    found: FileFindings
    options: LoadOptions
    nodes: Mapping[str, CheckNode]

    @property
    def verdict(self) -> VerdictType | None:
        return self.agent.verdict.type if self.agent.verdict else None

    def compile(self) -> Graph | None:
        aliases = self.aliases()
        entry_step = self.entry_step()
        files = check_prompt_files(self.registry, self.folder, self.found, templates=self.options.templates)
        prompts, questions = self.prompts(files, aliases)
        entries = self.validation_entries(files)
        if self.found.findings.failed or entry_step is None:
            return None
        steps = {
            node.id: self.step(node, prompts[node.id], questions.get(node.id), entries, aliases[node.id])
            for node in self.nodes.values()
        }
        return Graph(dialect=Dialect.CHECK, steps=steps, entry_step=entry_step, sections={})

    def aliases(self) -> Aliases:
        parameters = {parameter.name for parameter in self.agent.parameters}
        return name_handoff(self.nodes, run_variables(self.verdict) | parameters, self.found)

    def entry_step(self) -> str | None:
        names = Named(flow=tuple(self.nodes))
        mapping = self.registry.entry_step_mapping
        entries = check_entries(self.registry.entry_step, mapping, names, self.verdict, self.found)
        if not self.found.failed_at(_GRAPH_PLACES):  # of a broken graph it means nothing what can be reached
            self.check_graph(entries)
        return entries.step

    def check_graph(self, entries: Entries) -> None:
        """What no run can reach (SF346), and entries from which none can complete (SF707)."""
        following = {node.id: node.targets for node in self.nodes.values()}
        check_reached(following, entries, self.found)
        for at, step_id in entries.by_pointer.items():
            reached = reached_from((step_id,), following)
            if not any(self.nodes[one].kind is StepKind.CLOSURE for one in reached):
                message = f'no step with "complete" can be reached from the entry step "{step_id}"'
                self.found.add("SF707", at, message, 'Let an outcome "complete" the run.')

    def prompts(
        self, files: PromptFiles | None, aliases: Aliases
    ) -> tuple[dict[str, StepPrompt], dict[str, StepPrompt]]:
        """The prompts of the steps, and those of their checks."""
        if files is None:
            return {}, {}
        handed = {handoff_variable(node.id, key) for node in self.nodes.values() for key in node.handoff_keys}
        handed |= {name for names in aliases.values() for name in names}
        supply = supply_of(self.agent.parameters, handed, self.verdict, known=self.agent.known)
        action = closure_action(self.agent)
        desk = CheckPromptDesk(files=files, supply=supply, closure_action=action, found=self.found)
        own = {node.id: desk.own(node) for node in self.nodes.values()}
        questions = {node.id: desk.question(node) for node in self.nodes.values()}
        return _there(own), _there(questions)

    def validation_entries(self, files: PromptFiles | None) -> dict[str, ValidationEntry]:
        return ValidationDesk(
            declared=Declared.of(self.registry),
            closures=tuple(node.id for node in self.nodes.values() if node.kind is StepKind.CLOSURE),
            verdict=self.verdict,
            found=self.found,
            schemas=schema_desk(self.agent, self.folder, self.found, own_base=None, agent_id=self.registry.agent_id),
            prompts=files,
        ).entries()

    def step(
        self,
        node: CheckNode,
        prompt: StepPrompt,
        question: StepPrompt | None,
        entries: Mapping[str, ValidationEntry],
        aliases: Mapping[str, str],
    ) -> Step:
        entry = node.entry
        closure = node.kind is StepKind.CLOSURE
        verdict = self.verdict or VerdictType.COUNT_ITERATION
        return Step(
            id=node.id,
            name=entry.name or node.id,
            kind=node.kind,
            prompt=prompt,
            schema=built_schema(node),
            check=_check(node, question),
            format_retries=format_retries(self.agent, entry.format_retries),
            model=entry.model,
            permission_mode=entry.permission_mode,
            validation=entry_of(node.id, entries, verdict) if closure else None,
            aliases=aliases,
        )


def _there(prompts: Mapping[str, StepPrompt | None]) -> dict[str, StepPrompt]:
    return {step_id: prompt for step_id, prompt in prompts.items() if prompt is not None}


def _check(node: CheckNode, question: StepPrompt | None) -> Check:
    written = node.entry.check
    return Check(
        on_pass=node.on_pass,
        on_fail=node.on_fail,
        prompt=question,
        is_demanded=written is not None and written.response_format is not None,
        handoff_keys=node.handoff_keys,
    )
