"""Inputs are typed once, and every bad one is named."""

from __future__ import annotations

import pytest

from stepflow.domain.proof import HunkPolicy
from stepflow.domain.words import Network
from stepflow.errors import InputError
from stepflow.run.start.input_values import NetworkAccess
from stepflow.run.start.inputs import ProveInput, read_inputs


def test_texts_become_what_they_mean() -> None:
    inputs = read_inputs(
        {
            "parameters": "topic: parser\ncount: 3",
            "setup": "pip install -e .\n\nnpm ci\n",
            "limits": "{usd: 0.5, iterations: 7}",
            "start": "labels: |\n  bot/*\n  please fix\nbots: a, b c",
        }
    )
    assert inputs.parameters == {"topic": "parser", "count": 3}
    assert inputs.setup == ("pip install -e .", "npm ci")
    assert inputs.start.bots == ("a", "b", "c")
    assert (inputs.limits.usd, inputs.limits.iterations, inputs.limits.minutes) == (0.5, 7, 50)
    assert inputs.start.labels == ("bot/*", "please fix")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("limits", "usd: five", "input limits.usd: must be a number"),
        ("limits", "iterations: many", "input limits.iterations: must be a whole number."),
        ("limits", "budget-usd: 5", 'input limits: there is no key `budget-usd` (did you mean "usd"?); it knows usd,'),
        ("limits", "5", "input limits: write a YAML map"),
        ("mode", "dance", "'preflight', 'plan', 'gather' or 'prove'"),
        ("start", "min-permission: none", "input start.min-permission: write read, triage"),
        ("many-issues", "label: bug", "`label` is for the mode plan"),
        ("prove", "comand: pytest", "input prove.command: must be given"),
        ("prove", "command: pytest\nmax-hunks: 0", "input prove.max-hunks: must be at least 1"),
        ("parameters", "- a", "YAML map"),
    ],
)
def test_a_bad_input_is_named_with_what_would_be_right(name, value, words) -> None:
    with pytest.raises(InputError) as caught:
        read_inputs({name: value})
    assert words in str(caught.value)
    assert f"input {name}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" ", None),
        ("pytest -q {tests}\n", ProveInput(command="pytest -q {tests}")),
        ("npm test -- --grep 'days: all'", ProveInput(command="npm test -- --grep 'days: all'")),
        (
            "# In a job of its own.\ncommand: pytest {tests}\ntests: [spec/*.py]\nmax-hunks: 3\nhunks: require\n"
            "comment: true",
            ProveInput(
                command="pytest {tests}",
                tests=("spec/*.py",),
                max_hunks=3,
                hunks=HunkPolicy.REQUIRE,
                comment=True,
            ),
        ),
    ],
)
def test_a_proof_is_a_command_or_a_map_that_has_one(text: str, expected: ProveInput | None) -> None:
    inputs = read_inputs({"prove": text})
    assert inputs.prove == expected
    assert read_inputs({"prove": inputs.options()["prove"]}).prove == expected


@pytest.mark.parametrize(
    ("mode", "given", "words"),
    [
        ("plan", {}, "input many-issues: the mode plan needs `label: …` in it"),
        ("plan", {"many-issues": "label: bug\nissues: [7]"}, "input many-issues: `issues` is for the mode gather"),
        ("gather", {}, "input many-issues: the mode gather needs `from: …` in it"),
        ("gather", {"many-issues": "from: .\nafter: 7"}, "input many-issues: `after` is for the mode plan"),
    ],
)
def test_a_mode_for_many_issues_has_what_it_needs_and_nothing_of_the_other(mode, given, words) -> None:
    with pytest.raises(InputError) as caught:
        read_inputs({"mode": mode, **given})
    assert words in str(caught.value)


def test_all_bad_inputs_are_named_together() -> None:
    with pytest.raises(InputError) as caught:
        read_inputs({"mode": "x", "limits": {"usd": "y"}, "draft": "z"})
    assert all(f"input {name}" in str(caught.value) for name in ("mode", "limits.usd", "draft"))


@pytest.mark.parametrize("written", ["7", "#7", "o/r#7", "https://ghe.example:8443/o/r/pull/7"])
def test_the_issue_among_the_options_is_read_as_the_same_one_when_a_run_is_resumed(written: str) -> None:
    inputs = read_inputs({"issue": written})
    assert read_inputs({"issue": inputs.options()["issue"]}).issue == inputs.issue is not None


def test_no_secret_is_among_the_options_or_in_an_error() -> None:
    given = {"anthropic-api-key": "sk-hidden", "github-token": "ghs-hidden", "mcp-secrets": "DOCS_TOKEN: mcp-hidden"}
    telemetry = {"endpoint": "https://c.example", "headers": {"authorization": "Bearer otel-hidden"}}
    inputs = read_inputs({**given, "telemetry": telemetry})
    assert inputs.options()["telemetry"] == {"endpoint": "https://c.example", "content": False}
    assert "hidden" not in str(inputs.options())
    assert "hidden" not in repr(inputs)
    assert inputs.secrets() == ("sk-hidden", "ghs-hidden", "mcp-hidden", "Bearer otel-hidden", "otel-hidden")
    with pytest.raises(InputError) as caught:
        read_inputs({"limits": {"usd": "sk-secret"}})
    assert "sk-secret" not in str(caught.value)


def test_hosts_are_listed_with_the_network_that_they_are_for() -> None:
    assert read_inputs({"network": "pypi, *.example.org\nx.org:8443"}).network == NetworkAccess(
        reach=Network.ALLOW, hosts=("pypi", "*.example.org", "x.org:8443")
    )
    assert read_inputs({"network": "none"}).network == NetworkAccess(reach=Network.NONE)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("allow", "'allow' is neither an ecosystem (debian, npm, pypi) nor a host with a dot or a port"),
        ("none, pypi", "'none' is neither an ecosystem"),
        ("pypi https://x.org/", "'https://x.org/' is not a host: write a name"),
        ([], ""),
        ({"reach": "full"}, ""),
    ],
)
def test_hosts_that_cannot_count_are_refused_with_the_fix(given, words) -> None:
    with pytest.raises(InputError) as caught:
        read_inputs({"network": given})
    assert "input network: write `full`, `none`, or a list of hosts" in str(caught.value)
    assert words in str(caught.value)
