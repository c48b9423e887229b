"""What a run costs, counted: nothing here depends on a clock (bench/README.md has the times).

A bound stands a little above what was counted when it was written. When one is crossed, either the change is worth it
and the bound is raised with a reason, or something costs more than anybody meant.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from bench.billing import Accounts, TooManyMarks
from bench.flows import SYSTEM, make_flow, write_agent
from bench.script import reply_to
from stepflow.domain.agent.agent_settings import TOOL_SPECS
from stepflow.domain.conversation import ToolCall
from stepflow.domain.event import Noted
from stepflow.journal import JournalFile
from stepflow.model.wire import request_body
from stepflow.run.clock import SystemClock

STEPS = 5
TOOLS = [{"name": tool.name, "description": tool.description, "input_schema": tool.input_schema} for tool in TOOL_SPECS]


class Counted:
    """A model whose requests are built, counted and billed as the real ones are, and answered by the bench's script.

    The answers whose numbers are in `repeated` ask for their step again.
    """

    def __init__(self, *, repeated: Collection[int] = ()) -> None:
        self._repeated, self._answers = repeated, 0
        self.accounts, self.bytes, self.requests = Accounts(), 0, 0
        self.bodies: list[dict] = []

    def ask(self, request):
        from stepflow.domain.conversation import ModelTurn, StopReason

        body = request_body(request, max_tokens=32_000)
        self.requests += 1
        self.bytes += len(json.dumps(body, separators=(",", ":")))
        self.accounts.take(body)
        self.bodies.append(body)
        content, reason = reply_to(body)
        if reason == "end_turn":
            self._answers += 1
            if self._answers in self._repeated:
                output = json.loads(content[0]["text"])
                output["intent"] = "repeat"
                content = [{"type": "text", "text": json.dumps(output)}]
        return ModelTurn(content=tuple(content), stop_reason=StopReason(reason))


class Notes:
    """Reads the notes as the shell would."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout

    def begin_step(self, tools) -> None:
        """Nothing has to be started."""

    def run_tool(self, use):

        text = (self._checkout / use.input["command"].removeprefix("cat ")).read_text()
        return ToolCall(**vars(use), output=text, exit_code=0)

    def end_step(self) -> None:
        """Nothing runs."""


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Counted:
    """The bench's flow with five steps, from the agent's files to the bodies of its requests."""
    return _run(Counted(), tmp_path_factory.mktemp("flow"))


def _run(model: Counted, folder: Path) -> Counted:
    from stepflow import StepFlowRunner, load_agent

    checkout = make_flow(folder, STEPS)
    agent = load_agent(checkout / ".agent" / "bencher")
    result = StepFlowRunner(agent, model=model, tools=Notes(checkout)).run(cwd=checkout)
    assert result.success, result.reason
    return model


def test_a_step_of_four_calls_asks_five_times(counted: Counted) -> None:
    assert counted.requests == STEPS * 5


def test_what_is_sent_stays_small(counted: Counted) -> None:
    assert counted.bytes / STEPS < 36_500


def test_what_is_billed_stays_small(counted: Counted) -> None:
    """In 33 steps, 2,270 tokens a step with six tools; the same flow with one tool and no contract is billed 2,340."""
    assert counted.accounts.billed / STEPS < 2_700


def test_later_steps_read_the_tools_and_the_shared_system_prompt_that_the_first_step_wrote(counted: Counted) -> None:
    bills = [
        bill for body, bill in zip(counted.bodies, counted.accounts.bills, strict=True) if len(body["messages"]) == 1
    ]
    tools = sum(len(json.dumps(tool, separators=(",", ":"))) for tool in TOOLS) // 4
    assert bills[0].read == 0
    assert all(bill.read >= tools for bill in bills[1:])
    assert bills[1].read >= tools + len(SYSTEM) // 4, "with the same answer schema the system is read, too"


def test_a_later_turn_pays_only_for_what_is_new(counted: Counted) -> None:
    for body, bill in zip(counted.bodies, counted.accounts.bills, strict=True):
        new = sum(len(json.dumps(message)) for message in body["messages"][-2:]) // 4
        if len(body["messages"]) > 1:
            assert bill.input == 0
            assert bill.written <= new + 10


@pytest.mark.whole
def test_a_repeated_step_pays_only_for_what_is_new(tmp_path: Path) -> None:
    """Its tools, answer schema and system prompt are read; its first message is the only new one."""
    model = _run(Counted(repeated={2}), tmp_path)
    begun = [number for number, body in enumerate(model.bodies) if len(body["messages"]) == 1]
    assert len(begun) == STEPS + 1
    again = begun[2]
    new = len(json.dumps(model.bodies[again]["messages"])) // 4
    bill = model.accounts.bills[again]
    assert bill.input + bill.written <= new + 10


def test_a_correction_is_billed_alone(counted: Counted) -> None:
    """A format retry goes on in the same conversation: what was said before is read."""
    last = counted.bodies[-1]
    accounts = Accounts()
    accounts.take(last)
    answer = {"role": "assistant", "content": [{"type": "text", "text": "{}"}]}
    correction = {"role": "user", "content": [{"type": "text", "text": "Your answer does not fit."}]}
    bill = accounts.take(last | {"messages": [*last["messages"], answer, correction]})
    assert bill.written < 50
    assert bill.read > 1000


def test_the_tools_are_described_in_few_words() -> None:
    assert len(json.dumps(TOOLS, separators=(",", ":"))) < 2_250


def test_more_breakpoints_than_the_service_takes_are_noticed() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    system = [{"type": "text", "text": str(number), **mark} for number in range(5)]
    with pytest.raises(TooManyMarks):
        Accounts().take({"system": system, "messages": []})


def _python(program: str, *arguments: str, folder: Path | None = None) -> str:
    """What a program prints in a Python without this environment's packages."""
    words = [sys.executable, "-I", "-S", "-c", program, *arguments]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_the_toolbox_loads_the_standard_library_only_and_little_of_it() -> None:
    program = "import sys; sys.path.insert(0, sys.argv[1]); import child.launcher; print(len(sys.modules))"
    folder = Path(__file__).parents[2] / "stepflow" / "sandbox"
    assert int(_python(program, str(folder))) <= 165


def test_an_event_is_one_write_to_the_journal(tmp_path: Path) -> None:
    """Counted by the kernel, however long the journal is by then."""
    with JournalFile(tmp_path / "journal.jsonl", SystemClock()) as journal:
        for _ in range(2):
            before = _writes()
            for number in range(200):
                journal.append(Noted(level="info", message=f"[StepFlow] note {number}"))
            assert _writes() - before == 200


def _writes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("syscw:")).split()[1])


def test_a_registry_of_ten_times_the_steps_is_checked_in_about_ten_times_the_calls(tmp_path: Path) -> None:
    """Counted by the interpreter: calls of Python functions, of which a quadratic check would make a hundred times."""
    from stepflow import validate_agent

    validate_agent(_agent(tmp_path, 40))
    few, many = (_calls(lambda steps=steps: validate_agent(_agent(tmp_path, steps))) for steps in (40, 400))
    assert many < 11 * few


def _agent(folder: Path, steps: int) -> Path:
    agent_folder = folder / f"{steps}" / ".agent" / "bencher"
    if not agent_folder.exists():
        write_agent(agent_folder, steps)
    return agent_folder


def _calls(work) -> int:
    """How many calls, and rounds of generator expressions, some work takes."""
    count = 0

    def note(_frame, event, _argument) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
