"""Closed word lists that other rooms own and the loader checks against.

Takes: nothing. Gives: the keys of the shipped templates (prompts.md §8) and the names of the extractors (§10).
May touch: nothing.
"""

from __future__ import annotations

TEMPLATE_KEYS = frozenset(
    {
        "system",
        "initial_iterate",
        "continuation_iterate",
        "initial_issue",
        "continuation_issue",
        "initial_issue_label_only",
        "continuation_issue_label_only",
        "initial_project",
        "continuation_project",
        "initial_keyword",
        "continuation_keyword",
        "initial_manual",
        "continuation_manual",
        "initial_structured_signal",
        "continuation_structured_signal",
        "continuation_project_preparation",
        "continuation_project_processing",
        "continuation_project_review",
        "issue_closure_default",
        "project_closure_default",
        "polling_closure_default",
        "review_closure_default",
        "iteration_closure_default",
        "facilitation_closure_default",
        "project_continuation_closure_default",
        "statuscheck_continuation_default",
    }
)

EXTRACTOR_NAMES = frozenset(
    {
        "parseChangedFiles",
        "parseUntrackedFiles",
        "parseStagedFiles",
        "parseUnstagedFiles",
        "parseTestOutput",
        "failedTests",
        "errorOutput",
        "parseTypeErrors",
        "errors",
        "extractFiles",
        "files",
        "parseLintErrors",
        "lintErrors",
        "lintFiles",
        "parseFormatOutput",
        "formatFiles",
        "generateDiff",
        "diff",
        "parseBranchName",
        "parseRemoteStatus",
        "parseMergeStatus",
        "stdout",
        "stderr",
        "exitCode",
    }
)
