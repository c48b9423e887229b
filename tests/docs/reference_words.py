"""What the pages of keys and rules say of words that no model describes."""

from __future__ import annotations

from pathlib import Path

from stepflow.domain.words import VerdictType

MADE = "<!-- Made by `make docs` from the models, the rules and the test corpus; change those. -->"
HEAD = (Path(__file__).parent / "keys_head.md").read_text(encoding="utf-8")

VERDICTS = {
    VerdictType.POLL_STATE: "The issue's wanted state is set at closing, and read back. The run needs an issue.",
    VerdictType.COUNT_ITERATION: "After so many iterations.",
    VerdictType.COUNT_CHECK: "After so many answers.",
    VerdictType.DETECT_KEYWORD: "The word is in a text of the model.",
    VerdictType.DETECT_STRUCTURED: "The signal is in an answer, with its fields.",
    VerdictType.DETECT_GRAPH: "The graph decides. The registry must have gates or checks.",
    VerdictType.META_COMPOSITE: "All of the conditions (`and`), any (`or`), or the first that is met (`first`).",
}

#: What a group of extractors looks for.
EXTRACTED = {
    "parseChangedFiles": "Tracked files with a change, in `git status --porcelain`.",
    "parseUntrackedFiles": "Files that git does not know, in the same output.",
    "parseStagedFiles": "Files with a change in the index, in the same output.",
    "parseUnstagedFiles": "Files with a change in the working tree, in the same output.",
    "parseTestOutput": "Failed tests as `{name, file?, error}`: pytest, unittest, cargo, Deno, Go.",
    "errorOutput": "Both streams, in the order written; if long, the lines that name a failure and the end.",
    "parseTypeErrors": "Type errors as `{file, line, column?, code?, message}`: mypy, pyright, tsc, Deno.",
    "extractFiles": "Files that are named before a line number.",
    "parseLintErrors": "Findings as `{file, line, column?, rule, message}`: ruff, flake8, eslint, Deno.",
    "lintFiles": "The files of those findings.",
    "parseFormatOutput": "Files that are not formatted: black, ruff, prettier, gofmt, Deno.",
    "generateDiff": "The diff in the output; else those files as text.",
    "parseBranchName": "The branch that a message names; else the current one.",
    "parseRemoteStatus": "`no upstream`, `detached HEAD`, the upstream, or what went wrong.",
    "parseMergeStatus": "`merged`, or how many commits are not.",
    "stdout": "All of stdout.",
    "stderr": "All of stderr.",
    "exitCode": "The exit code.",
}

ON_VERDICTS = (
    "For `runner.verdict.type`. In a registry with gates the run always ends by `closing` of a closure step, in one "
    "with checks by `complete`; the type then chooses the first step and the limits.\n\n"
)
ON_EXTRACTORS = (
    "For `validators.<name>.extractParams`: what a failed command printed, as variables of the retry prompt.\n\n"
)
ON_CHECKS = (
    "The *check dialect*; [the form with gates](./steps.md) is the *gate dialect*. A step is asked and then "
    "checked; a pass and a fail each lead somewhere. It is told by `basePath`, or by a step with `prompt`, `check` or "
    "`iterations`; the two forms do not mix (SF302).\n"
)
ON_OLD_NAMES = "Read as the new ones, with one warning for each file (SF110).\n\n"
ON_RULES = f"""# The rules for agent definitions

{MADE}

`stepflow validate` reports every rule that an agent breaks, with file, line, and what to change.
`stepflow explain CODE` shows a rule offline.
An *error* stops the run before it begins; a *warning* is worth a look; a *note* says what was chosen.
"""
