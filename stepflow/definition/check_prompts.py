"""The prompts of a check registry (prompts.md §1, registry.md §6.1).

Takes: prompt references and where prompt files lie. Gives: a `StepPrompt` each, or problems SF701, SF109, SF501, SF502,
SF507 and SF511.
May touch: reads the agent's prompt files through `PromptFiles`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.definition.documents import beside
from stepflow.definition.folder import unsafe_reason
from stepflow.definition.json_text import child
from stepflow.definition.prompt_files import (
    DEFAULT_EDITION,
    DEFAULT_PLAIN_TEMPLATE,
    DEFAULT_TEMPLATE,
    Address,
    PromptFiles,
)
from stepflow.definition.steps import check_part
from stepflow.definition.variables import check_supply, used_in
from stepflow.domain.definition import StepPrompt
from stepflow.domain.words import ClosureAction, StepKind

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from stepflow.definition.check_file import CheckRegistry, PromptEntry
    from stepflow.definition.check_steps import CheckNode
    from stepflow.definition.findings import FileFindings
    from stepflow.definition.folder import AgentFolder
    from stepflow.definition.prompt_files import Prompt
    from stepflow.definition.variables import Supply

DEFAULT_BASE_PATH = "prompts"
DEFAULT_C1 = "steps"
_PARTS = ("c1", "c2", "c3", "edition", "adaptation")
_CLOSURE_ADAPTATIONS = (ClosureAction.LABEL_ONLY, ClosureAction.LABEL_AND_CLOSE)


def check_prompt_files(
    registry: CheckRegistry, folder: AgentFolder, found: FileFindings, *, templates: Traversable
) -> PromptFiles | None:
    """The prompt files of a check registry; None when its base path cannot be used."""
    base = DEFAULT_BASE_PATH if registry.base_path is None else registry.base_path
    reason = unsafe_reason(base)
    if reason:
        message = f'"basePath" is "{base}", which {reason}'
        found.add("SF109", "/basePath", message, "Name a place inside the agent folder.")
    if not check_part("", "c1", registry.c1, found) or reason:
        return None
    return PromptFiles(
        folder=folder,
        base=folder.base(base),
        c1=registry.c1 or DEFAULT_C1,
        template=DEFAULT_TEMPLATE,
        plain_template=DEFAULT_PLAIN_TEMPLATE,
        templates=templates,
        found=found,
    )


@dataclass(frozen=True, kw_only=True)
class CheckPromptDesk:
    """Finds the prompts of the steps and of their checks."""

    files: PromptFiles
    supply: Supply
    closure_action: ClosureAction | None
    found: FileFindings

    def own(self, node: CheckNode) -> StepPrompt | None:
        """The step's own prompt; None after a problem was reported."""
        if node.entry.uses_stdin:
            message = f'step "{node.id}": "usesStdin" is true, so a run without input text cannot render it'
            self.found.add("SF511", child(node.at, "usesStdin"), message, "Start every run with an input text.")
        return self._prompt(node, node.entry.prompt, child(node.at, "prompt"))

    def question(self, node: CheckNode) -> StepPrompt | None:
        """The prompt of the step's check, if it has one."""
        check = node.entry.check
        return self._prompt(node, check.prompt if check else None, child(child(node.at, "check"), "prompt"))

    def _prompt(self, node: CheckNode, entry: PromptEntry | None, at: str) -> StepPrompt | None:
        if entry is None or not self._sound(node, entry, at):
            return None
        prompt = self._by_path(node, entry, at) if entry.path is not None else self._by_address(node, entry, at)
        if prompt is None:
            return None
        own = self.found.findings.of(prompt.source.file)
        for name, line in used_in(prompt).items():
            check_supply(node.id, name, self.supply, own, line=line)
        return StepPrompt(source=prompt.source, uses_stdin=bool(node.entry.uses_stdin), bare_names=True)

    def _sound(self, node: CheckNode, entry: PromptEntry, at: str) -> bool:
        """Whether the reference is a path or an address, and safe."""
        given = [key for key in _PARTS if getattr(entry, key) is not None]
        fault = ""
        if entry.path is not None and given:
            fault = f'has both "path" and "{given[0]}"'
        elif entry.path is None and not (entry.c1 and entry.c2 and entry.c3):
            fault = 'has neither "path" nor "c1", "c2" and "c3"'
        if fault and not self.found.at(at):
            fix = 'Write {"c1": "steps", "c2": "phase", "c3": "<name>"}, or {"path": "<file>"}.'
            self.found.add("SF701", at, f'step "{node.id}": the prompt reference {fault}', fix)
        if entry.path is None and entry.fallback is not None:
            message = f'step "{node.id}": "fallback" has no effect beside an address, only beside a "path"'
            place = child(at, "fallback")
            self.found.add("SF111", place, message, "Remove the key, or leave it.")
        parts = [check_part(at, key, getattr(entry, key), self.found) for key in _PARTS]
        paths = [self._safe(node, getattr(entry, key), child(at, key)) for key in ("path", "fallback")]
        return not fault and all(parts) and all(paths) and not self.found.at(at)

    def _safe(self, node: CheckNode, path: str | None, at: str) -> bool:
        reason = unsafe_reason(path) if path is not None else None
        if reason:
            message = f'step "{node.id}": the prompt path "{path}" {reason}'
            self.found.add("SF109", at, message, "Name a file under the base path.")
        return reason is None

    def _by_path(self, node: CheckNode, entry: PromptEntry, at: str) -> Prompt | None:
        named = [self.files.below_base(path) for path in (entry.path, entry.fallback) if path]
        prompt = next((prompt for path in named if (prompt := self.files.read(path)) is not None), None)
        if prompt is None:
            self._report_none(node, named, at)
        return prompt

    def _by_address(self, node: CheckNode, entry: PromptEntry, at: str) -> Prompt | None:
        edition = entry.edition or DEFAULT_EDITION
        address = Address(c1=entry.c1, c2=entry.c2 or "", c3=entry.c3 or "", edition=edition)
        plain = self.files.path(address, None)
        adaptation = entry.adaptation
        if not adaptation and node.kind is StepKind.CLOSURE and self.closure_action in _CLOSURE_ADAPTATIONS:
            adaptation = self.closure_action
        adapted = self.files.read(self.files.path(address, adaptation)) if adaptation else None
        prompt = adapted or self.files.read(plain)
        if prompt is None:
            self._report_none(node, [plain], at)
        elif adapted is None and entry.adaptation:
            own = self.files.path(address, entry.adaptation)
            message = f'step "{node.id}": the adaptation file "{own}" is missing, "{plain}" is used'
            self.found.add("SF502", at, message, 'Write the file, or remove "adaptation".')
        return prompt

    def _report_none(self, node: CheckNode, paths: list[str], at: str) -> None:
        named = " and ".join(f'"{path}"' for path in paths)
        what = f"file {named} is" if len(paths) == 1 else f"files {named} are"
        near = beside(self.files.folder, paths[0])
        message = f'step "{node.id}": the prompt {what} missing or empty{near}'
        self.found.add("SF501", at, message, f'Write "{paths[0]}".')
