"""A small model of GitHub's runner, written from its source (actions/runner), to judge what we print and write.

Sources: `ActionCommand.TryParseV2` and `TryParse`, `ActionCommandManager`, `SetEnvFileCommand.ProcessCommand`; lines
are those of .NET's `StreamReader.ReadLine`, blanks those of `Char.IsWhiteSpace`.
"""

from __future__ import annotations

import re
import unicodedata

#: `_commandExtensions` of the runner and `stop-commands`; compared without regard to case.
REGISTERED = {
    *("set-env", "set-output", "save-state", "add-mask", "add-path", "add-matcher", "remove-matcher", "debug"),
    *("warning", "error", "notice", "echo", "group", "endgroup", "stop-commands", "internal-set-repo-path"),
}
IGNORED_MARKS = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u3164\ufe0f\uffa0"
#: Pictures and Chinese characters, which every version of ICU weighs, also those of which this Python does not know.
NEWER = re.compile("[\U0001f000-\U0001faff\U00020000-\U0003fffd]")
BLANKS = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


def lines_of(output: str) -> list[str]:
    """What the runner reads as lines; the byte-order mark of a stream is not part of its first."""
    return re.split(r"\r\n|\r|\n", output.removeprefix("\ufeff"))


def obeyed_in(line: str) -> tuple[str, str] | None:
    """The command of a line and its data, None for a line that is only shown."""
    return _second_form(line, loose=False) or _second_form(line, loose=True) or _first_form(line)


def _second_form(line: str, *, loose: bool) -> tuple[str, str] | None:
    text = _without_ignorables(line.lstrip(BLANKS)) if loose else line.lstrip(BLANKS)
    text = text.lstrip(BLANKS)
    if not text.startswith("::") or (end := text.find("::", 2)) < 0:
        return None
    name = text[2:end].partition(" ")[0]
    return (name.lower(), text[end + 2 :]) if name.lower() in REGISTERED else None


def _first_form(line: str) -> tuple[str, str] | None:
    for text in (line, _without_ignorables(line)):
        start = text.find("##[")
        end = text.find("]", start)
        name = text[start + 3 : end].partition(" ")[0] if start >= 0 and end >= 0 else ""
        if name.lower() in REGISTERED:
            return name.lower(), text[end + 1 :]
    return None


def _without_ignorables(text: str) -> str:
    """What a comparison by culture passes over. The runner compares so, and cuts by place: worse than it is."""
    gone = ("Cc", "Cf", "Cn", "Co", "Cs")
    return "".join(
        c
        for c in text
        if c in BLANKS or NEWER.fullmatch(c) or (unicodedata.category(c) not in gone and c not in IGNORED_MARKS)
    )


def unescaped(data: str) -> str:
    """The data of a command as the runner shows it."""
    return data.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")


def outputs_in(text: str) -> dict[str, str]:
    """The names and values of an output file; raises `ValueError` where the runner fails the step."""
    variables: dict[str, str] = {}
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line:
            continue
        equals, heredoc = line.find("="), line.find("<<")
        if equals >= 0 and (heredoc < 0 or equals < heredoc):
            variables[line[:equals]] = line[equals + 1 :]
            continue
        name, _, delimiter = line.partition("<<")
        if heredoc < 0 or not name or not delimiter:
            raise ValueError(line)
        end = lines.index(delimiter, at)
        variables[name] = "\n".join(lines[at:end])
        at = end + 1
    return variables
