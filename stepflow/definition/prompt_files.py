"""Where prompt texts come from (prompts.md §1).

Takes: addresses of steps, sections and retry prompts. Gives: their texts, or problems SF109, SF104, SF508 and SF514.
May touch: reads the agent's prompt files and the package's templates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepflow.definition.folder import FaultKind, FileFault, unsafe_reason
from stepflow.definition.placeholders import TEMPLATE_PARTS, fill_template, template_fault
from stepflow.definition.prompt_text import read_prompt
from stepflow.definition.steps import check_part
from stepflow.domain.definition import SourceText

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from stepflow.definition.findings import FileFindings
    from stepflow.definition.folder import AgentFolder
    from stepflow.definition.registry_file import GateRegistry

DEFAULT_BASE = "prompts"
DEFAULT_TEMPLATE = "{c1}/{c2}/{c3}/f_{edition}_{adaptation}.md"
DEFAULT_PLAIN_TEMPLATE = "{c1}/{c2}/{c3}/f_{edition}.md"
DEFAULT_EDITION = "default"


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A text with the line of its file on which it begins."""

    source: SourceText
    first_line: int = 1
    #: False for a file that is there and cannot be used, which is reported: nothing is concluded from its text.
    usable: bool = True


@dataclass(frozen=True, kw_only=True)
class Address:
    """The parts of a prompt address that an entry gives; without a `c1` of its own it has the registry's."""

    c2: str
    c3: str
    edition: str = DEFAULT_EDITION
    c1: str | None = None


@dataclass(kw_only=True)
class PromptFiles:
    """Reads prompts below one base folder, each once."""

    folder: AgentFolder
    base: str
    c1: str
    template: str
    plain_template: str
    templates: Traversable
    found: FileFindings
    _read: dict[str, Prompt | None] = field(default_factory=dict)

    def path(self, address: Address, adaptation: str | None) -> str:
        """The file of an address, relative to the agent folder."""
        parts = {"c1": address.c1 or self.c1, "c2": address.c2, "c3": address.c3, "edition": address.edition}
        template = self.template if adaptation else self.plain_template
        path = fill_template(template, {**parts, "adaptation": adaptation or ""})
        return self.below_base(path)

    def below_base(self, path: str) -> str:
        """A path under the base, relative to the agent folder."""
        return path if self.base == "." else f"{self.base}/{path}"

    def read(self, path: str) -> Prompt | None:
        """The prompt in a file; None when the file is missing or empty."""
        if path not in self._read:
            self._read[path] = self._read_now(path)
        return self._read[path]

    def shipped(self, key: str) -> Prompt:
        """A template of the package."""
        return shipped_prompt(self.templates, key)

    def _read_now(self, path: str) -> Prompt | None:
        own = self.found.findings.of(path)
        try:
            raw = self.folder.read(path)
        except FileFault as fault:
            if fault.kind is FaultKind.MISSING:
                return None
            code = "SF109" if fault.kind is FaultKind.UNSAFE else "SF104"
            own.add(code, "", f'the prompt file "{path}" {fault.message}', "Put a UTF-8 text file there.")
            return Prompt(source=SourceText(text="", file=path), usable=False)
        text = read_prompt(raw)
        if text.yaml_fault:
            message = f"the front matter is not valid YAML: {text.yaml_fault}"
            own.add("SF508", "", message, "Correct it, or remove it: it has no effect.", line=text.yaml_line)
        return Prompt(source=SourceText(text=text.text, file=path), first_line=text.first_line) if text.text else None


def shipped_prompt(templates: Traversable, key: str) -> Prompt:
    """A template of the package. A missing one is a broken installation, not a fault of the agent: it raises."""
    text = read_prompt((templates / f"{key}.md").read_text(encoding="utf-8"))
    source = SourceText(text=text.text, file=f"stepflow/engine/prompt/templates/{key}.md", template=key)
    return Prompt(source=source, first_line=text.first_line)


def prompt_files(
    registry: GateRegistry, folder: AgentFolder, found: FileFindings, *, templates: Traversable
) -> PromptFiles | None:
    """The prompt files of a registry; None when its base or its templates cannot be used."""
    base = registry.user_prompts_base if registry.user_prompts_base is not None else DEFAULT_BASE
    template = registry.path_template if registry.path_template is not None else DEFAULT_TEMPLATE
    plain = registry.path_template_no_adaptation
    plain = plain if plain is not None else DEFAULT_PLAIN_TEMPLATE
    sound = [
        _check_base(base, found),
        _check_template("pathTemplate", template, found),
        _check_template("pathTemplateNoAdaptation", plain, found),
        bool(registry.c1) and check_part("", "c1", registry.c1, found),
    ]
    if not all(sound):
        return None
    return PromptFiles(
        folder=folder,
        base=folder.base(base),
        c1=registry.c1 or "",
        template=template,
        plain_template=plain,
        templates=templates,
        found=found,
    )


def _check_base(base: str, found: FileFindings) -> bool:
    reason = unsafe_reason(base)
    if reason:
        found.add("SF109", "/userPromptsBase", f'"userPromptsBase" is "{base}", which {reason}', _INSIDE)
    return reason is None


_INSIDE = "Name a place inside the agent folder."


def _check_template(key: str, template: str, found: FileFindings) -> bool:
    fault = template_fault(template)
    if fault:
        message = f'"{key}" is "{template}": {fault}'
        fix = f"Use only {', '.join('{' + part + '}' for part in TEMPLATE_PARTS)}."
        found.add("SF514", f"/{key}", message, fix)
        return False
    reason = unsafe_reason(fill_template(template, dict.fromkeys(TEMPLATE_PARTS, "x")))
    if reason:
        found.add("SF109", f"/{key}", f'"{key}" is "{template}", which {reason}', _INSIDE)
    return reason is None
