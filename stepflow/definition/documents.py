"""A JSON file of the agent folder as an object.

Takes: the folder and a file name. Gives: the object, or None with the problem why not (SF102, SF104, SF106, SF109).
May touch: reads the agent folder.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stepflow.definition.findings import LIKE_PATHS, closest_match, listed
from stepflow.definition.folder import FaultKind, FileFault
from stepflow.definition.json_text import JsonFault, last_key, parse_json

if TYPE_CHECKING:
    from stepflow.definition.findings import FileFindings
    from stepflow.definition.folder import AgentFolder
    from stepflow.definition.json_text import Document
    from stepflow.domain.json import JsonObject


#: A text that begins as YAML does and JSON never.
_YAML = re.compile(r"\s*(---|#|[A-Za-z_][\w-]*:(\s|$))")


def read_object(folder: AgentFolder, found: FileFindings, *, what: str) -> JsonObject | None:
    """The object in the JSON file that `found` is about. `what` names the file's role in messages."""
    try:
        text = folder.read(found.file)
    except FileFault as fault:
        code = {FaultKind.UNSAFE: "SF109", FaultKind.CONTENT: "SF104"}.get(fault.kind, "SF102")
        near = beside(folder, found.file) if fault.kind is FaultKind.MISSING else ""
        found.add(code, "", f'the {what} "{found.file}" {fault.message}{near}', _FIXES[fault.kind])
        return None
    try:
        document = parse_json(text)
    except JsonFault as fault:
        report_fault(text, fault, found, "SF104", f"the {what} {fault.message}")
        return None
    take_document(text, document, found)
    if not isinstance(document.value, dict):
        found.add("SF106", "", f"the {what} holds no JSON object", "Write one object in braces.")
        return None
    return document.value


def report_fault(text: str, fault: JsonFault, found: FileFindings, code: str, message: str) -> None:
    """Report what is no JSON, and say so when it looks like YAML."""
    fix = "Write valid JSON: no comments, no comma after the last item, every text and key in double quotes."
    if _YAML.match(text):
        fix = "Write the file as JSON: it looks like YAML, which is read nowhere but in scenarios and front matter."
    found.add(code, "", message, fix, line=fault.line, column=fault.column)


def beside(folder: AgentFolder, file: str) -> str:
    """What is there in the place of a file that is missing, in words.

    A file that was read already has its place.
    """
    there = [name for name in folder.files() if name != file and name not in folder.texts]
    alike = [name for name in there if _one_part_apart(name, file)]
    place, _, _ = file.rpartition("/")
    near = alike or [name for name in there if name.rpartition("/")[0] == place and _stem(name) == _stem(file)]
    return f"; there is {listed(near[:3])}" if near else ""


def _one_part_apart(there: str, wanted: str) -> bool:
    """The same path but for one name, which is alike."""
    pairs = [(one, other) for one, other in zip(there.split("/"), wanted.split("/"), strict=False) if one != other]
    same_depth = there.count("/") == wanted.count("/")
    if not same_depth or len(pairs) != 1:
        return False
    name, other = pairs[0]
    return closest_match(name, [other], LIKE_PATHS) is not None and _alike_ending(name, other)


def _alike_ending(there: str, wanted: str) -> bool:
    return there.rpartition(".")[2] == wanted.rpartition(".")[2] if "." in wanted else "." not in there


def _stem(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]


def take_document(text: str, document: Document, found: FileFindings) -> None:
    """Keep the text, so that problems can be placed; report each key that one object has twice (SF104)."""
    found.findings.json_texts[found.file] = text
    for pointer, line in document.repeated:
        key = last_key(pointer)
        message = f'the key "{key}" is written twice in one object'
        found.add("SF104", pointer, message, "Keep one of them; the last one is read.", line=line)


_FIXES = {
    FaultKind.UNSAFE: "Name a file inside the agent folder.",
    FaultKind.MISSING: "Create the file, or correct its name.",
    FaultKind.UNREADABLE: "Make it a regular file that can be read.",
    FaultKind.CONTENT: "Save it as UTF-8 and make it smaller than 2 MiB.",
}
