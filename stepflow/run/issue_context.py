"""What an agent is shown of the repository around an issue: labels, similar issues, and issue forms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from fnmatch import fnmatchcase

from stepflow.boundary.repository_reader import SimilarIssue
from stepflow.definition.folder import FileRefused, read_below, text_of, walk_files
from stepflow.definition.parsing import YamlFault, read_yaml
from stepflow.domain.agent.agent_settings import IssueContext
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.json import JsonObject, JsonValue, value_at
from stepflow.domain.run import Issue
from stepflow.domain.words import Provider
from stepflow.engine.prompt.intake.sanitize import SanitizedText, sanitize, sanitize_line, sanitize_plain
from stepflow.errors import BoundaryError, InputError
from stepflow.run.issue import Subject, github_reader, join_texts, new_mark, quote
from stepflow.run.request import RunRequest

MOST_LABELS = 100
MOST_SIMILAR = 20
#: Characters of the text of a similar issue, of a label with its description, and of all issue forms.
LONGEST_EXCERPT = 300
LONGEST_LABEL = 150
LONGEST_FORMS = 4_000
FORMS = ".github/ISSUE_TEMPLATE"
_LARGEST_FORM = 64 * 1024


def add_issue_context(
    request: RunRequest, agent: AgentDefinition, subject: Subject, context: SanitizedText
) -> tuple[SanitizedText, Subject]:
    """Add what the agent's definition asks for to the data for the model, and to the notes of the subject what cannot
    be read."""
    issue, token, wanted = subject.issue, request.inputs.read_token, agent.github.context
    parts, warnings = [context], list[str]()
    if issue is None or not wanted:
        return context, subject
    mark = new_mark()
    if IssueContext.ISSUE_FORMS in wanted:
        parts.append(_section("issue forms", mark, _forms(request, issue)))
    asked = [each for each in (IssueContext.LABELS, IssueContext.SIMILAR_ISSUES) if each in wanted]
    if asked and token is None and request.inputs.provider is not Provider.SCRIPTED:
        warnings.append(f"Without `read-token` the agent is not shown: {', '.join(asked)}.")
    elif asked and token:
        with closing(github_reader(request, token.get_secret_value())) as reader:
            try:
                if IssueContext.LABELS in asked:
                    parts.append(_section("labels", mark, _labels(reader.label_descriptions(), agent)))
                if IssueContext.SIMILAR_ISSUES in asked:
                    found = reader.similar_issues(issue.title, most=MOST_SIMILAR + 1)
                    others = [each for each in found if each.number != issue.number][:MOST_SIMILAR]
                    parts.append(_section("similar issues", mark, map(_excerpt, others)))
            except (BoundaryError, InputError) as error:
                warnings.append(f"The agent is not shown all of {', '.join(asked)}: {error.message}")
    return join_texts(parts), replace(subject, notes=(*subject.notes, *warnings))


def _section(name: str, mark: str, lines: Iterable[SanitizedText]) -> SanitizedText:
    """Put the lines below a marked heading; empty without any line. What was hidden in them is not this issue's."""
    whole = SanitizedText(text="\n".join(line.text for line in lines))
    return quote(SanitizedText(text=f"{name} of the repository"), whole, mark) if whole.text else SanitizedText()


def _labels(labels: dict[str, str], agent: AgentDefinition) -> Iterator[SanitizedText]:
    """Yield the labels that the agent may add."""
    allowed = agent.github.allowed_labels
    names = (
        name
        for name in labels
        if allowed is None or any(fnmatchcase(name.casefold(), glob.casefold()) for glob in allowed)
    )
    for name, _ in zip(names, range(MOST_LABELS), strict=False):
        yield sanitize_line(f"{name}: {labels[name]}".rstrip(": ")[:LONGEST_LABEL], "label")


def _excerpt(issue: SimilarIssue) -> SanitizedText:
    title, where = sanitize_line(issue.title, "similar issue"), f"similar issue #{issue.number}"
    body = sanitize(issue.body, where, limit=LONGEST_EXCERPT)
    return SanitizedText(
        text=f"#{issue.number} ({issue.state}): {title.text}\n  {' '.join(body.text.split())}".rstrip()
    )


def _forms(request: RunRequest, issue: Issue) -> Iterator[SanitizedText]:
    """Yield the fields of the form that the issue was opened with, or of all forms if it has the headings of none."""
    forms = {name: [*_fields(form)] for name, form in _read_forms(request)}
    headings = {line.removeprefix("###").strip() for line in issue.body.splitlines() if line.startswith("###")}
    used = max(forms, key=lambda name: len(headings & {label for label, _ in forms[name]}), default="")
    if used and headings & {label for label, _ in forms[used]}:
        forms = {used: forms[used]}
    left = LONGEST_FORMS
    for name, fields in forms.items():
        required = [f"- {label}{' (required)' if is_required else ''}" for label, is_required in fields]
        text = "\n".join((f"{name} asks for:", *required))[:left]
        left -= len(text)
        if text:
            yield sanitize_plain(text, "issue form")


def _read_forms(request: RunRequest) -> Iterator[tuple[str, JsonObject]]:
    """Yield the issue forms of the checkout by their names. Files that are no forms are left out."""
    root = request.checkout
    for file in sorted(walk_files(root / FORMS)):
        if not file.endswith((".yml", ".yaml")) or file.startswith("config."):
            continue
        try:
            _, form = read_yaml(text_of(read_below(root, f"{FORMS}/{file}", limit=_LARGEST_FORM)))
        except (FileRefused, YamlFault):
            continue
        if isinstance(form, dict):
            yield str(form.get("name") or file), form


def _fields(form: JsonObject) -> Iterator[tuple[str, bool]]:
    """Yield the label of each field of a form, and whether it is required."""
    body = form.get("body")
    fields: list[JsonValue] = body if isinstance(body, list) else []
    for field in fields:
        label = value_at(field, "attributes.label") if isinstance(field, dict) else None
        if isinstance(field, dict) and isinstance(label, str):
            yield label, value_at(field, "validations.required") is True
