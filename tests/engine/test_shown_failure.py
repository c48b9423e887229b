"""What tools print to both streams reaches the retry prompt in their order (recorded outputs, one stream per mark)."""

from __future__ import annotations

import pytest
from prompt_parts import texts

from stepflow.domain.checkout import CommandResult
from stepflow.domain.flow import NotDone
from stepflow.engine.judge import judge_completion
from stepflow.engine.prompt.render import render_retry
from tests.build import make_entry, make_validator
from tests.fakes import TableCommands, TableGuards

#: `1 ` before a line of stdout, `2 ` before one of stderr, in the order in which the tools wrote them.
RECORDED = {
    "cargo test": """\
2    Compiling greet v0.1.0 (/srv/greet)
2 warning: unused variable: `name`
2  --> src/lib.rs:1:14
2     Finished `test` profile [unoptimized + debuginfo] target(s) in 0.41s
2      Running unittests src/lib.rs (target/debug/deps/greet-0c5e)
1
1 running 1 test
1 test tests::greets ... FAILED
1
1 failures:
1
1 ---- tests::greets stdout ----
1 thread 'tests::greets' panicked at src/lib.rs:9:9:
1 assertion `left == right` failed
1   left: "hi"
1  right: "hello"
1 test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
2 error: test failed, to rerun pass `--lib`
""",
    "npm test": """\
2 npm warn config init.module Use `--init-module` instead.
1
1 > greet@1.0.0 test
1 > jest
1
2 FAIL ./greet.test.js
2   ✕ greets the world (4 ms)
2   ● greets the world
2     Expected: "hello, world"
2     Received: "hi"
2 Tests:       1 failed, 1 total
2 npm error Lifecycle script `test` failed with error:
2 npm error code 1
""",
    "node --test under npm": """\
1 > greet@1.0.0 test
1 > node --test
2 (node:42) ExperimentalWarning: The fs.promises API is experimental
1 ✖ greets the world (1.2ms)
1   AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:
1   'hi' !== 'hello, world'
1 ℹ fail 1
""",
    "go test": """\
2 go: downloading github.com/google/go-cmp v0.6.0
1 --- FAIL: TestGreet (0.00s)
1     greet_test.go:9: got "hi", want "hello"
1 FAIL
1 FAIL\texample.org/greet\t0.002s
1 ok  \texample.org/greet/other\t0.003s
1 FAIL
""",
    "make over gradle": """\
1 > Task :test FAILED
1 GreetTest > greets() FAILED
1     org.opentest4j.AssertionFailedError at GreetTest.java:9
2 FAILURE: Build failed with an exception.
2 * What went wrong: There were failing tests.
2 make: *** [Makefile:2: test] Error 1
""",
}  # fmt: skip


def result_of(recorded: str) -> CommandResult:
    lines = [(line[0], f"{line[2:]}\n") for line in recorded.splitlines()]
    streams = {mark: "".join(text for stream, text in lines if stream == mark) for mark in "12"}
    combined = "".join(text for _, text in lines)
    return CommandResult(exit_code=1, stdout=streams["1"], stderr=streams["2"], combined=combined)


@pytest.mark.parametrize("name", RECORDED)
def test_all_that_a_tool_printed_is_shown_in_its_order(name: str) -> None:
    result = result_of(RECORDED[name])
    assert result.combined.rstrip("\n") in retry_prompt(result)


@pytest.mark.parametrize(
    ("name", "where"), list(zip(RECORDED, ("before", "after", "around", "before", "after"), strict=True))
)
def test_below_a_flood_of_warnings_the_failure_is_shown(name: str, where: str) -> None:
    flood = "".join(f"2 warning: unused import number {number}\n" for number in range(3_000))
    text = {"before": flood + RECORDED[name], "after": RECORDED[name] + flood, "around": flood + RECORDED[name] + flood}
    shown = retry_prompt(result_of(text[where]))
    assert len(shown) < 21_000
    for line in RECORDED[name].splitlines():
        if any(word in line for word in ("FAIL", "✕", "✖", "panicked", "Expected", "want")):
            assert line[2:] in shown, line


def retry_prompt(result: CommandResult) -> str:
    entry = make_entry("closure.issue", make_validator("tests", "check"))
    verdict = judge_completion(
        entry,
        iteration=1,
        failures=0,
        root="/srv/greet",
        commands=TableCommands({"check": [result]}),
        guards=TableGuards(),
        record=lambda _event: None,
    )
    assert isinstance(verdict, NotDone)
    return render_retry(entry, verdict.failure, "closure.issue", texts()).text
