"""Whatever is called what: no command prints a line, a command of the runner or a control sequence that a name says,
and each document that it writes holds names as text."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, example, given, settings

from stepflow.cli import main
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.event import Event, RunFinished, RunStarted
from stepflow.domain.words import Outcome
from stepflow.journal import JournalFile, write_line
from stepflow.report.flow_graph import mermaid_graph
from stepflow.report.graph_svg import graph_svg
from stepflow.report.many_runs import evaluation_html, evaluation_json, evaluation_lines, trial_lines
from stepflow.report.safe_text import text_lines
from stepflow.run.clock import SystemClock
from tests.checkout import git
from tests.cli.test_cli_eval import evaluation_of
from tests.hostile_world import break_agent, write_report
from tests.ledger_world import BEGIN, BOT, LedgerWorld
from tests.report.every_event import EVENTS, hostile_copy
from tests.report.hostile_agent import hostile_agent
from tests.report.plausible_run import TIMED
from tests.servers.github_api import GitHubServer, State
from tests.sinks import (
    EVERY_SIGN,
    KNOWN,
    NAMES,
    as_text,
    heading_faults,
    json_faults,
    log_faults,
    markdown_faults,
    page_faults,
)
from tests.tried import MANY, MARKS


def said(*words: str) -> str:
    """All that a command prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.suppress(SystemExit):
        main(words)
    return out.getvalue() + err.getvalue()


def printed(*words: str) -> Iterator[str]:
    """What is wrong with that."""
    yield from (f"stepflow {words[0]}: {fault}" for fault in log_faults(said(*words)))


def validate(names: list[str], root: Path) -> Iterator[str]:
    agent = break_agent(root, names).name
    for form in ("text", "github"):
        yield from printed("validate", "--format", form)
    for form in ("json", "sarif"):
        yield from (f"validate {form}: {fault}" for fault in json_faults(said("validate", "--format", form)))
    yield from printed("validate", agent, as_text(names[1]))
    yield from printed("graph", agent)
    yield from printed("graph", agent, "--format", "json")


def graph(names: list[str], root: Path) -> Iterator[str]:
    agent: AgentDefinition = hostile_agent(as_text(names[0]), as_text(names[1]))
    yield from log_faults("\n".join(text_lines(mermaid_graph(agent))))
    yield from page_faults(graph_svg(agent))


def wrong_words(names: list[str], _root: Path) -> Iterator[str]:
    # What is a word of its own begins a line of ours here and there.
    for name in (f"n{as_text(name)}" for name in names):
        for words in (
            *(["explain", name], [name], ["run", name], ["show", name], ["schema", name], ["rehearse", name]),
            *(["eval", name], ["gather", name], ["validate", f"--{name}"], ["verify", name], ["preflight", name]),
            *(["run", "x", "--model", name], ["run", "x", "--network", name], ["run", "x", "--limits", name]),
            *(["ledger", "--repository", name], ["ledger", "--since", name], ["init", name], ["graph", name]),
            *(["prove", "--command", name], ["show", "--otlp", name], ["run", "x", "--scenario", name]),
        ):
            yield from printed(*words)


def gather(names: list[str], root: Path) -> Iterator[str]:
    write_report(root / "reports", 7, names)
    yield from printed("gather", "reports")
    yield from json_faults(said("gather", "reports", "--format", "json"))
    page = said("gather", "reports", "--format", "markdown")
    yield from (*log_faults(page), *heading_faults(page), *markdown_faults(page, (), notifies=False))


def ledger(names: list[str], root: Path) -> Iterator[str]:
    texts = [*map(as_text, names)]
    world = LedgerWorld()
    # A row begins with the agent's name.
    agent = f"a{texts[0]}"
    world.add_runs(7, (agent, "0123456789ab"), [(Outcome.COMPLETED, 500_000, 4.0)], BEGIN)
    world.add_pull(8, 7, (agent, "0123456789ab"), BEGIN, "merged")
    world.state.pulls[-1] |= {"title": texts[1], "head": f"stepflow/{texts[2]}/issue-7"}
    world.add_foreign_pull(9, texts[3], login=texts[4])
    world.state.commits.append(("2026-03-03T09:00:00Z", texts[5]))
    # A stranger's copy of a marker.
    world.state.add_comment(7, world.state.comments[0]["body"], texts[4])
    with GitHubServer(world.state, "ghs_token") as server:
        addresses = ("--github-api-url", server.api_url, "--github-server-url", server.web_url)
        given = ("ledger", "--repository", "o/r", "--author", BOT, *addresses)
        os.environ["GITHUB_TOKEN"] = "ghs_token"
        try:
            yield from printed(*given, "--html", "page.html")
            yield from json_faults(said(*given, "--json"))
        finally:
            del os.environ["GITHUB_TOKEN"]
    yield from page_faults((root / "page.html").read_text())


def evaluation(names: list[str], _root: Path) -> Iterator[str]:
    texts = [*map(as_text, names)]
    plain = evaluation_of([(True, False), (False, True), (False, False)], texts[0])
    pairs = tuple(replace(each, case=texts[1], title=texts[2]) for each in plain.pairs)
    variant = replace(plain.baseline, name=texts[3])
    whole = replace(plain, agent=texts[4], pairs=pairs, baseline=variant, ended=texts[5], folder=texts[5])
    lines = [*evaluation_lines(whole), *trial_lines(texts[1], True, pairs[1].candidate)]
    yield from log_faults("\n".join(lines))
    yield from page_faults(evaluation_html(whole))
    assert evaluation_json(whole)["agent"] == texts[4]


def is_event(event: Event) -> bool:
    """Whether a journal may hold it: where numbers belong, there is no text."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            write_line(event, seq=1, time=0.0, redact=str)
        except UserWarning:
            return False
    return True


def show(names: list[str], root: Path) -> Iterator[str]:
    (root / "run").mkdir()
    entries = [TIMED[0][1], *(hostile_copy(event, as_text(name)) for name in names for event in EVENTS.values())]
    # A journal has one start, and an end only when the run is over.
    others = (each for each in entries if not isinstance(each, RunStarted | RunFinished) and is_event(each))
    with JournalFile(root / "run/journal.jsonl", SystemClock()) as journal:
        for event in (entries[0], *others):
            journal.append(event)
    yield from printed("show", "run", "--all")
    yield from json_faults(said("show", "run", "--json"))
    said("show", "run", "--html", "run.html")
    yield from page_faults((root / "run.html").read_text())
    said("show", "run", "--otlp", "otlp.jsonl")
    for line in (root / "otlp.jsonl").read_text().split("\n"):
        if line:
            json.loads(line)
    yield from printed("gather", "run")
    with GitHubServer(state := State("o/r"), "ghs_token") as server:
        state.add_issue(8, as_text(names[0]), as_text(names[1]))
        words = ("verify", "8", "--run-folder", "run", "--unsigned", "--github-api-url", server.plain_url)
        yield from printed(*words)


PLAYS = {each.__name__: each for each in (validate, graph, wrong_words, gather, ledger, evaluation, show)}


@pytest.mark.parametrize("command", PLAYS)
@MARKS[0]
@MARKS[1]
@settings(max_examples=25, phases=[Phase.explicit, Phase.generate] if MANY else [Phase.explicit])
@given(NAMES)
@example(EVERY_SIGN)
@example(KNOWN)
def test_no_name_is_more_than_a_name_in_a_terminal_or_a_document(command: str, names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        git("init", "--quiet", cwd=Path(folder))
        assert [*PLAYS[command](names, Path(folder))] == []
