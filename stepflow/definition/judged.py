"""Whether anything judges what an agent changes (SF612)."""

from __future__ import annotations

import re
import shlex

from stepflow.definition.diagnostics import FileProblems
from stepflow.domain.agent.definition import AgentDefinition, effective_tools

UNJUDGED = "SF612"
REASON = "its commits are pushed, but none of its checks runs code, so nothing says whether a change works"
FIX = 'Add a validator whose "command" runs the tests, such as `make test`; for a shipped agent, set `checks`.'
#: Programs that compare or print, and run nothing of the project.
_IDLE = frozenset({"git", "echo", "printf", "true", ":", "exit", "cd", "set"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_WRITING = frozenset({"Bash", "Write", "Edit"})


def runs_code(command: str) -> bool:
    """Return whether a shell command runs anything beyond git and words such as `echo` and `true`, which judge no
    code."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = [*lexer]
    except ValueError:  # a quote that does not end here
        return True
    begins = True
    for word in words:
        if word and set(word) <= set("();|&"):
            begins = True
        elif begins and not _ASSIGNMENT.match(word):
            if word not in _IDLE:
                return True
            begins = False
    return False


def is_unjudged(agent: AgentDefinition) -> bool:
    """Return whether an agent's commits are pushed although nothing at its closings, and no step of its flow, runs
    code."""
    commands = [each.command for each in agent.validators if not each.clean_tree]
    commands += [step.command.command for step in agent.steps.values() if step.command]
    has_hands = any(_WRITING & effective_tools(agent, step).keys() for step in agent.steps.values())
    return agent.github.pushes and has_hands and not any(map(runs_code, commands))


def report_unjudged(agent: AgentDefinition, problems: FileProblems) -> None:
    """Report an agent that nothing judges (SF612), unless that is because an entry of `validationSteps` is misspelled,
    which has been reported (SF606)."""
    is_misspelled = any(each.code == "SF606" for each in problems.diagnostics.collected)
    if is_unjudged(agent) and not is_misspelled:
        problems.add(UNJUDGED, "/validationSteps", REASON, FIX)
