"""A JSON file of the agent folder as an object.

Takes: the folder and a file name. Gives: the object, or None with the problem why not (SF102, SF104, SF106, SF109).
May touch: reads the agent folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.load.folder import FaultKind, FileFault
from stepflow.load.json_text import JsonFault, parse_json

if TYPE_CHECKING:
    from stepflow.domain.json import JsonObject
    from stepflow.load.findings import FileFindings
    from stepflow.load.folder import AgentFolder
    from stepflow.load.json_text import Document


def read_object(folder: AgentFolder, found: FileFindings, *, what: str) -> JsonObject | None:
    """The object in the JSON file that `found` is about. `what` names the file's role in messages."""
    try:
        text = folder.read(found.file)
    except FileFault as fault:
        code = {FaultKind.UNSAFE: "SF109", FaultKind.CONTENT: "SF104"}.get(fault.kind, "SF102")
        found.add(code, "", f'the {what} "{found.file}" {fault.message}', _FIXES[fault.kind])
        return None
    try:
        document = parse_json(text)
    except JsonFault as fault:
        found.add("SF104", "", f"the {what} {fault.message}", "Write valid JSON.", line=fault.line)
        return None
    take_document(text, document, found)
    if not isinstance(document.value, dict):
        found.add("SF106", "", f"the {what} holds no JSON object", "Write one object in braces.")
        return None
    return document.value


def take_document(text: str, document: Document, found: FileFindings) -> None:
    """Keep the text, so that problems can be placed; report each key that one object has twice (SF104)."""
    found.findings.json_texts[found.file] = text
    for pointer, line in document.repeated:
        key = pointer.rpartition("/")[2]
        found.add("SF104", pointer, f'the key "{key}" is written twice in one object', "Keep one of them.", line=line)


_FIXES = {
    FaultKind.UNSAFE: "Name a file inside the agent folder.",
    FaultKind.MISSING: "Create the file, or correct its name.",
    FaultKind.UNREADABLE: "Make it a regular file that can be read.",
    FaultKind.CONTENT: "Save it as UTF-8 and make it smaller than 2 MiB.",
}
