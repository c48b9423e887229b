"""The prompt texts that the package ships (prompts.md §8).

Takes: nothing. Gives: the closed list of their keys; the text of key K is `templates/K.md` in this package.
May touch: nothing; `load/` reads the files.
"""

from __future__ import annotations

TEMPLATE_KEYS: tuple[str, ...] = (
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
)
