"""The extractors: parameters for retry prompts out of a validator's output (prompts.md §10).

Takes: a validator's `extractParams` and its command's result. Gives: one JSON value per parameter.
May touch: nothing; the current branch is asked for through a function, and only where it is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from stepflow.domain.command import CommandResult
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.engine.completion.extract_code import files_named, lint_errors, lint_files, type_errors
from stepflow.engine.completion.extract_format import format_diff, format_files
from stepflow.engine.completion.extract_git import (
    branch_name,
    changed_files,
    merge_status,
    remote_status,
    staged_files,
    unstaged_files,
    untracked_files,
)
from stepflow.engine.completion.extract_output import CurrentBranch, Output, read_output
from stepflow.engine.completion.extract_tests import failed_tests

Extractor = Callable[[Output], JsonValue]

TELLING = re.compile(r"failed|error", re.IGNORECASE)


def extract(names: Mapping[str, str], result: CommandResult, *, root: str, current_branch: CurrentBranch) -> JsonObject:
    """The value of each parameter; `names` maps parameters to extractors, an unknown extractor gives null (SF605)."""
    output = read_output(result, root=root, current_branch=current_branch)
    return {parameter: EXTRACTORS[name](output) if name in EXTRACTORS else None for parameter, name in names.items()}


def error_output(output: Output) -> JsonValue:
    """stderr, or stdout from the first line that tells of a failure."""
    if output.stderr.strip():
        return output.stderr
    lines = output.stdout.split("\n")
    first = next((at for at, line in enumerate(lines) if TELLING.search(line)), 0)
    return "\n".join(lines[first:])


EXTRACTORS: Mapping[str, Extractor] = {
    "parseChangedFiles": changed_files,
    "parseUntrackedFiles": untracked_files,
    "parseStagedFiles": staged_files,
    "parseUnstagedFiles": unstaged_files,
    "parseTestOutput": failed_tests,
    "failedTests": failed_tests,
    "errorOutput": error_output,
    "parseTypeErrors": type_errors,
    "errors": type_errors,
    "extractFiles": files_named,
    "files": files_named,
    "parseLintErrors": lint_errors,
    "lintErrors": lint_errors,
    "lintFiles": lint_files,
    "parseFormatOutput": format_files,
    "formatFiles": format_files,
    "generateDiff": format_diff,
    "diff": format_diff,
    "parseBranchName": branch_name,
    "parseRemoteStatus": remote_status,
    "parseMergeStatus": merge_status,
    "stdout": lambda output: output.raw.stdout,
    "stderr": lambda output: output.raw.stderr,
    "exitCode": lambda output: output.raw.exit_code,
}
