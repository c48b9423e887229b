"""Runs inside the image: reads a repository with a pull request and a review from the standard input, and prints what
the boundary would post of it, as JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from stepflow.boundary.output_filter import OutputFilter
from stepflow.boundary.review import ReviewPlanner, find_suggestions, read_review
from stepflow.domain.agent_settings import GitHubSettings
from stepflow.domain.definition import Condition, ExitCode, FailurePattern, Validator
from stepflow.domain.run import DiffLines, ReviewedFile, ReviewedPull
from stepflow.run.clock import Cancellation
from stepflow.run.proof import Trials
from stepflow.run.request import RunRequest
from stepflow.run.start.inputs import read_inputs
from stepflow.run.start.trigger import Trigger
from stepflow.run.suggestions import SuggestionTrials
from stepflow.sandbox.change import ChangeRepository
from stepflow.sandbox.host_git import head_commit


def main() -> None:
    """Try the review's suggestions as a run does before it submits them."""
    given = json.load(sys.stdin)
    root, scratch, warnings = Path(given["root"]), Path(given["scratch"]), list[str]()
    commit = head_commit(root)
    lines = tuple(DiffLines(first=first, last=last) for first, last in given["lines"])
    pull = ReviewedPull(
        number=1,
        url="",
        author="eve",
        base="main",
        base_commit=commit,
        head=commit,
        merge=commit,
        files=(ReviewedFile(path=given["path"], right=lines),),
    )
    review = read_review(given["review"], warnings)
    assert review is not None
    worth, problems = find_suggestions(review, pull, OutputFilter())
    cancellation = Cancellation()
    cancellation.hold()
    pattern = FailurePattern(name="red", description="It is red.", edition="failed")
    checks = [
        Condition(validator=Validator(name=name, command=command, success=ExitCode(code=0), pattern=pattern))
        for name, command in given["checks"].items()
    ]
    trials = Trials(
        repository=ChangeRepository(scratch / "change", root),
        request=RunRequest(run_id="run-1", inputs=read_inputs({}), trigger=Trigger(), root=root, folder=scratch),
        commands=(),
        cancellation=cancellation,
    )
    tried = SuggestionTrials(trials, commit, checks).run(worth)
    everything = sorted((*tried.suggestions, *problems), key=lambda each: each.comment)
    tried = dataclasses.replace(tried, suggestions=tuple(everything))
    planner = ReviewPlanner(github=GitHubSettings(), pull=pull, output_filter=OutputFilter(), tried=tried)
    effect = planner.plan(review, "")
    comments = [{**dataclasses.asdict(comment), "text": comment.text} for comment in effect.comments]
    print(json.dumps({"comments": comments, "body": effect.body, "tried": dataclasses.asdict(tried)}))


if __name__ == "__main__":
    main()
