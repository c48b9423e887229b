"""Prompt files: where they are, which part of a file is the prompt, and the placeholders in it."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass, field
from importlib.resources import files

from stepflow.definition.agent import Agent
from stepflow.definition.diagnostics import LIKE_PATHS, FileProblems, closest_match, did_you_mean, hint
from stepflow.definition.file_models import GateRegistry, Registry
from stepflow.definition.folder import AgentFolder, FileRefused, Why, file_code, unsafe_reason
from stepflow.definition.parsing import Pointer, YamlFault, read_yaml
from stepflow.definition.steps import check_part
from stepflow.domain.agent_settings import GitHubSettings
from stepflow.domain.definition import SourceText
from stepflow.domain.words import ClosureAction, StepKind
from stepflow.engine.prompt.render import INPUT_TEXT
from stepflow.engine.prompt.template import Tag, Use, parse_template
from stepflow.engine.prompt.variables import run_variable_names, system_names

#: The placeholders of a path template.
TEMPLATE_PARTS = ("c1", "c2", "c3", "edition", "adaptation")

_BRACES = re.compile(r"\{([^{}]*)\}")


def fill_template(template: str, parts: dict[str, str]) -> str:
    """The path that a sound template gives; a part that is not given is empty."""
    return _BRACES.sub(lambda match: parts.get(match[1], ""), template)


def split_prompt(text: str) -> tuple[str, str, int]:
    """A prompt file's front matter, its text with plain line ends and trimmed, and the line on which that begins."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    begin = lines.index("---", 1) + 1 if lines[0] == "---" and "---" in lines[1:] else 0
    body = "\n".join(lines[begin:])
    blank = body[: len(body) - len(body.lstrip())].count("\n")
    return "\n".join(lines[1 : begin - 1]) if begin else "", body.strip(), begin + blank + 1


DEFAULT_BASE = "prompts"
DEFAULT_TEMPLATE = "{c1}/{c2}/{c3}/f_{edition}_{adaptation}.md"
DEFAULT_PLAIN_TEMPLATE = "{c1}/{c2}/{c3}/f_{edition}.md"
DEFAULT_EDITION = "default"


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A text with the line of its file on which it begins."""

    source: SourceText
    first_line: int = 1
    #: False for a file that exists and cannot be used, which was reported: nothing is concluded from its text.
    usable: bool = True

    def tags(self, known: Container[str] = (), *, is_open: bool = False, is_closed: bool = False) -> tuple[Tag, ...]:
        """The tags of the text as `parse_template` reads them; those of a shipped template need no check."""
        if self.source.template:
            return ()
        return parse_template(self.source.text, known, is_open=is_open, is_closed=is_closed).tags

    def line_of(self, tag: Tag) -> int:
        """The line of the file that a tag is on."""
        return self.first_line + self.source.text.count("\n", 0, tag.start)


@dataclass(frozen=True, kw_only=True)
class Address:
    """The parts of a prompt address that an entry gives; the registry's `c1` stands in for a missing one."""

    c2: str
    c3: str
    edition: str = DEFAULT_EDITION
    c1: str | None = None


@dataclass(kw_only=True)
class PromptFiles:
    """Reads prompts below one base folder, each once. Closure steps without an adaptation use this `adaptation`."""

    folder: AgentFolder
    base: str
    c1: str
    template: str
    plain_template: str
    adaptation: ClosureAction | None
    problems: FileProblems
    _read: dict[str, Prompt | None] = field(default_factory=dict)

    def find(self, kind: StepKind | None, address: Address, adaptation: str | None, at: Pointer) -> Prompt | None:
        """The prompt of a step, from the file for its adaptation if that exists. `at` is the pointer of the address."""
        plain = self.path(address, None)
        fitting = adaptation or (self.adaptation if kind is StepKind.CLOSURE else None)
        adapted = self.read(self.path(address, fitting)) if fitting else None
        prompt = adapted or self.read(plain)
        if prompt is not None and adapted is None and adaptation:
            own = self.path(address, adaptation)
            message = f'the adaptation file "{own}" is missing, "{plain}" is used'
            self.problems.report("SF502", at, message, 'Write the file, or remove "adaptation".')
        return prompt

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

    def _read_now(self, path: str) -> Prompt | None:
        own = self.problems.diagnostics.of(path)
        try:
            raw = self.folder.read(path)
        except FileRefused as refused:
            if refused.why is Why.MISSING:
                return None
            code = "SF109" if refused.unsafe else "SF104"
            own.add(code, "", f'the prompt file "{path}" {refused.message}', refused.fix)
            return Prompt(source=SourceText(text="", file=path), usable=False)
        front, text, first_line = split_prompt(raw)
        try:
            read_yaml(front, build=False)  # its content has no effect
        except YamlFault as fault:
            message = f"the front matter is not valid YAML: {fault.problem}"
            own.add("SF508", "", message, "Correct it, or remove it: it has no effect.", line=(fault.line or 1) + 1)
        return Prompt(source=SourceText(text=text, file=path), first_line=first_line) if text else None


def shipped_prompt(key: str) -> Prompt:
    """A template of the package. A missing one means a broken installation, not a fault of the agent: this raises."""
    file = files("stepflow.engine.prompt") / "templates" / f"{key}.md"
    _, text, first_line = split_prompt(file.read_text(encoding="utf-8"))
    source = SourceText(text=text, file=f"stepflow/engine/prompt/templates/{key}.md", template=key)
    return Prompt(source=source, first_line=first_line)


def open_prompts(
    registry: Registry, folder: AgentFolder, problems: FileProblems, github: GitHubSettings
) -> PromptFiles | None:
    """The prompt files of a registry; None when its base or its templates cannot be used. A closure step's prompt is
    adapted to the closure action that agent.json sets under `github`."""
    base, c1 = registry.prompts_base, registry.c1 or registry.default_c1
    template, plain = DEFAULT_TEMPLATE, DEFAULT_PLAIN_TEMPLATE
    if isinstance(registry, GateRegistry):
        template = template if registry.path_template is None else registry.path_template
        plain = plain if registry.path_template_no_adaptation is None else registry.path_template_no_adaptation
    base = DEFAULT_BASE if base is None else base
    reason = unsafe_reason(base)
    if reason:
        key = type(registry).model_fields["prompts_base"].alias
        problems.add("SF109", f"/{key}", f'"{key}" is "{base}", which {reason}', _INSIDE)
    sound = [
        not reason,
        _check_template("pathTemplate", template, problems),
        _check_template("pathTemplateNoAdaptation", plain, problems),
        bool(c1) and check_part(Pointer(), "c1", c1, problems),
    ]
    if not all(sound):
        return None
    closure_action = github.default_closure_action
    return PromptFiles(
        folder=folder,
        base=folder.base(base),
        c1=c1,
        template=template,
        plain_template=plain,
        adaptation=closure_action if github.enabled and closure_action in _CLOSURE_ADAPTATIONS else None,
        problems=problems,
    )


_CLOSURE_ADAPTATIONS = (ClosureAction.LABEL_ONLY, ClosureAction.LABEL_AND_CLOSE)
_INSIDE = "Name a place inside the agent folder."


def _check_template(key: str, template: str, problems: FileProblems) -> bool:
    unknown = [part for part in _BRACES.findall(template) if part not in TEMPLATE_PARTS]
    if unknown or re.search(r"[{}]", _BRACES.sub("", template)):
        fault = f'"{{{unknown[0]}}}" is not part of an address' if unknown else "a brace stands alone"
        message = f'"{key}" is "{template}": {fault}'
        fix = f"Use only {', '.join('{' + part + '}' for part in TEMPLATE_PARTS)}."
        problems.add("SF514", f"/{key}", message, fix)
        return False
    reason = unsafe_reason(fill_template(template, dict.fromkeys(TEMPLATE_PARTS, "x")))
    if reason:
        problems.add("SF109", f"/{key}", f'"{key}" is "{template}", which {reason}', _INSIDE)
    return reason is None


def closest_variable(path: str, names: Collection[str]) -> str | None:
    """The variable that a name or a dotted path probably means: one spelled similarly, or a handoff with that key."""
    parts = path.removeprefix("uv.").split(".")
    by_key = (name for name in names if name.endswith(f"_{parts[-1]}") and name not in run_variable_names(None))
    flat = re.sub(r"[^A-Za-z0-9_-]", "_", "_".join(parts))
    for near in (flat, *sorted(by_key, key=len), closest_match(flat, names), parts[0]):
        if near in names:
            return near
    return None


@dataclass(frozen=True, kw_only=True)
class TagReporter:
    """Reports the tags of one prompt that stay as text, or insert nothing (SF512, SF516).

    `owner` says whose prompt it is, `names` are the variables that it may use; `plain` ones have no parts. `advice` is
    what to do about an unknown name.
    """

    prompt: Prompt
    owner: str
    names: Collection[str]
    plain: Collection[str]
    problems: FileProblems
    advice: str = "Declare a parameter, hand it off in a step"

    def report(self, tags: Iterable[Tag], *, takes_sections: bool = False) -> None:
        """Report each spelling once."""
        for tag in {tag.written: tag for tag in reversed(tuple(tags))}.values():
            match tag.use:
                case Use.UNKNOWN if tag.is_explicit and "." in tag.path:
                    self._add_malformed(tag)
                case Use.UNKNOWN:
                    self._add_unknown(tag)
                case Use.FAULT:
                    self._add(tag, tag.fault, "Correct it")
                case Use.SECTION if not takes_sections:
                    self._add(tag, "stays as text: only prompts of steps with gates take sections in", "Write the text")
                case Use.VALUE if "." in tag.path.removeprefix("uv.") and tag.name in self.plain:
                    self._add(tag, f'puts in nothing: "{tag.name}" has no parts', f'Write "{{uv-{tag.name}}}"')

    def _add_malformed(self, tag: Tag) -> None:
        near = closest_variable(tag.path, self.names)
        message = f'{self.owner}"{tag.written}" is not a variable: a name has letters, digits, "_" and "-"{hint(near)}'
        fix = f'Write "{{uv-{near or re.sub("[^A-Za-z0-9_-]", "_", tag.path)}}}".'
        own = self.problems.diagnostics.of(self.prompt.source.file)
        own.add("SF512", "", message, fix, line=self.prompt.line_of(tag), word=tag.written)

    def _add_unknown(self, tag: Tag) -> None:
        near = closest_variable(tag.path, self.names)
        if tag.path == INPUT_TEXT:
            self._add(tag, 'stays as text: the step does not have "usesStdin"', 'Set "usesStdin": true')
        elif tag.path in self.names:
            self._add(tag, "stays as text in a code block", f'Write "{{uv-{tag.path}}}" for its value')
        elif not tag.in_code or (near and tag.written.startswith("{{")):  # other code is as it is meant to be
            is_block = "#" in tag.written
            state = "asks for what nothing supplies" if is_block else "stays as text: nothing supplies it"
            meant = tag.written.replace(tag.path, near or "") if is_block else f"{{uv-{near}}}"
            self._add(tag, state + hint(near), f'Write "{meant}"' if near else self.advice)

    def _add(self, tag: Tag, state: str, fix: str) -> None:
        own = self.problems.diagnostics.of(self.prompt.source.file)
        message, fix = (
            f'{self.owner}"{tag.written}" {state}',
            f'{fix}, or write "\\{tag.written}" if the text is meant.',
        )
        own.add("SF516", "", message, fix, line=self.prompt.line_of(tag), word=tag.written)


_SYSTEM_PATH = "/runner/flow/systemPromptPath"


def read_system_prompt(agent: Agent, folder: AgentFolder) -> SourceText | None:
    """The system prompt, the agent's own or the shipped one; None when it cannot be read."""
    path = agent.runner.flow.system_prompt_path
    if path is None:
        return shipped_prompt("system").source
    fix = 'Name a file of the agent folder, or leave "systemPromptPath" out.'
    try:
        _, text, first_line = split_prompt(folder.read(path))
    except FileRefused as refused:
        texts = [one for one in folder.files() if one.endswith(".md")] if refused.why is Why.MISSING else []
        message = f'the system prompt: "{path}" {refused.message}{did_you_mean(path, texts, LIKE_PATHS)}'
        agent.problems.add(file_code(refused), _SYSTEM_PATH, message, fix)
        return None
    if not text:
        agent.problems.add("SF102", _SYSTEM_PATH, f'the system prompt: the file "{path}" is empty', fix)
    prompt = Prompt(source=SourceText(text=text, file=path), first_line=first_line)
    if agent.known:
        _check_system_prompt(prompt, agent)
    return prompt.source


def _check_system_prompt(prompt: Prompt, agent: Agent) -> None:
    """Report variables that are not the same in every step of a run: they stay as text in the system prompt."""
    names = system_names(agent.parameters)
    reporter = TagReporter(
        prompt=prompt,
        owner="the system prompt: ",
        names=names,
        plain=names,
        problems=agent.problems,
        advice="Write it in the prompt of a step",
    )
    reporter.report(prompt.tags(names, is_closed=True))
