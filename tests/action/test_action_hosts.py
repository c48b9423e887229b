"""`network: allow` in the whole action: what is reached, what is not, and where people and programs read of it."""

from __future__ import annotations

import json
import re
import sys

import pytest

from tests.checkout import Invocation
from tests.servers.private_network import Proxy
from tests.servers.web_pages import Pages
from tests.world import World, answer, bash, solve, understood

pytestmark = [pytest.mark.whole, pytest.mark.skipif(sys.platform != "linux", reason="the sandbox of Linux")]
ALLOWED = {"network": "allow", "allowed_hosts": "good.example *.fine.example"}


@pytest.fixture
def company(world: World):
    """The runner's way out leads through a proxy, which knows every name."""
    names = ("good.example", "a.fine.example", "bad.example")
    with Pages() as pages, Proxy(dict.fromkeys(names, ("127.0.0.1", pages.port))) as proxy:
        world.runner.environ = {
            "HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}",
            "NO_PROXY": "127.0.0.1,localhost",
        }
        yield proxy


def report_of(done: Invocation) -> dict:
    return done.report


def hosts_of(done: Invocation) -> dict[str, tuple[int, int]]:
    return {each["host"]: (each["allowed"], each["refused"]) for each in report_of(done)["hosts"]}


def test_what_setup_and_tools_ask_for_is_held_and_shown_everywhere(world: World, company: Proxy) -> None:
    asks = "curl -sS http://good.example/ http://a.fine.example/ http://bad.example/; curl -sS https://bad.example/"
    done = world.run(
        [understood(), bash(asks), *solve()[1:]], **ALLOWED, setup="curl -sSf http://good.example/ > /dev/null"
    )
    assert done.outputs["outcome"] == "completed", done.log
    assert company.targets() == {"good.example:80", "a.fine.example:80"}
    shown = {"good.example": (2, 0), "a.fine.example": (1, 0), "bad.example": (0, 2)}
    assert hosts_of(done) == shown
    # What came of the model's command is what it is told.
    results = json.dumps(world.model.bodies)
    assert "canarycanarystepflow: bad.example is not in allowed-hosts" in results
    assert "response 403" in results
    # The events stand before what they led to.
    recorded = [event for event in world.events(done) if event["event"] in ("hosts_requested", "noted", "tool_call")]
    kinds = [event["event"] if event["event"] != "noted" else event["message"] for event in recorded]
    assert kinds.index("hosts_requested") == kinds.index("setup ended with exit code 0") - 1
    assert kinds[kinds.index("tool_call") - 1] == "hosts_requested"
    assert kinds.count("hosts_requested") == 2
    assert "[Network] allowed good.example ×1, a.fine.example ×1; refused bad.example ×2" in done.log
    for host, (allowed, refused) in shown.items():
        assert f"| <code>{host}</code> | {allowed} | {refused}" in done.summary
    page = (done.folder / "report.html").read_text()
    assert "allowed good.example ×2, a.fine.example ×1; refused bad.example ×2" in page
    assert "closed, but for TCP through the parent to good.example, " in done.summary
    # Nobody need act on it after a success.
    assert "allowed-hosts" not in world.comments()[0]


def test_a_failed_run_names_the_refused_hosts_on_the_issue(world: World, company: Proxy) -> None:
    done = world.run(solve(), **ALLOWED, setup="curl -sSf http://bad.example/")
    assert done.outputs["outcome"] == "misconfigured"
    assert hosts_of(done) == {"bad.example": (0, 1)}
    assert (
        "**Refused by `network: allow`**, because `allowed-hosts` does not list them: `bad.example`."
        in (world.comments()[0])
    )
    assert company.requests == []


def test_validators_are_held_as_well(world: World, company: Proxy) -> None:
    world.edit("steps_registry.json", lambda registry: use_command(registry, "curl -sSf http://bad.example/"))
    done = world.run(solve(), **ALLOWED, base_checks="skip")
    assert done.outputs["outcome"] == "validation_failed"
    assert hosts_of(done) == {"bad.example": (0, 1)}
    assert company.requests == []


def use_command(registry: dict, command: str) -> None:
    """Let every check be this one, with no second attempt."""
    for validator in registry["validators"].values():
        validator["command"] = command
    for entry in registry["validationSteps"].values():
        entry["onFailure"] = {"action": "abort", "maxAttempts": 1}


def test_the_parents_own_calls_are_held_by_nothing_and_not_among_the_hosts(world: World) -> None:
    done = world.run(solve(), **ALLOWED)
    assert (done.outputs["outcome"], hosts_of(done)) == ("completed", {})
    assert "### Hosts" not in done.summary


def test_a_run_that_goes_on_holds_its_tools_to_the_same_hosts_and_adds_up(world: World, company: Proxy) -> None:
    ask = bash("curl -sS http://good.example/ http://bad.example/")
    folder = {"run_folder": str(world.runner.folder / "mine"), "on_failure": "nothing"}
    first = world.run([understood(), ask], **ALLOWED, **folder)
    assert first.outputs["outcome"] == "model_failed"
    done = world.run(
        [answer("continuation.issue", "repeat", summary="once more"), ask, *solve()[1:]], **ALLOWED, **folder
    )
    assert done.outputs["outcome"] == "completed", done.log
    assert hosts_of(done) == {"good.example": (2, 0), "bad.example": (0, 2)}


def test_a_preflight_shows_the_rule_and_what_the_checks_were_refused(world: World, company: Proxy) -> None:
    world.edit("steps_registry.json", lambda registry: use_command(registry, "curl -sSf http://bad.example/"))
    done = world.run([], mode="preflight", **ALLOWED)
    assert re.search(r"ok +sandbox: network +closed, but for TCP through the parent to good.example, \*.fine", done.log)
    assert "`setup` and checks were refused some: refused bad.example" in done.log


def test_hosts_without_the_network_that_they_are_for_are_refused_with_the_fix(world: World) -> None:
    done = world.run(solve(), allowed_hosts="pypi")
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
    assert "input allowed-hosts: works only with `network: allow`; set that" in done.outputs["reason"]


def narrow(world: World, network: str) -> None:
    """Let agent.json say what the tools may reach at most."""
    world.edit("agent.json", lambda agent: agent["runner"].__setitem__("boundaries", {"network": network}))


@pytest.mark.parametrize(
    ("own", "given", "met", "described"),
    [
        ("none", {}, "closed", "`network` is `none` for the tools, set by agent.json"),
        ("none", ALLOWED, "closed", "`network` is `none` for the tools, set by agent.json"),
        ("allow", ALLOWED, "closed, but for TCP", "`network` is `allow` for the tools, set by agent.json"),
        (
            "allow",
            {"network": "none"},
            "closed",
            "`network` is `none` for the tools, set by the input; agent.json would allow `allow`",
        ),
        (
            "full",
            {"network": "none"},
            "closed",
            "`network` is `none` for the tools, set by the input; agent.json would allow `full`",
        ),
        ("full", {}, "open", "`network` is `full` for the tools, set by agent.json"),
    ],
)
def test_the_narrower_network_of_the_input_and_of_agent_json_applies_and_is_named(
    world: World, own: str, given: dict[str, str], met: str, described: str
) -> None:
    narrow(world, own)
    done = world.run(solve(), **given)
    assert done.outputs["outcome"] == "completed", done.log
    assert f"[Network] {described}" in done.log
    started = next(event for event in world.events(done) if event["event"] == "run_started")
    layer = started["isolation"]["network"]
    assert layer.startswith(met)
    assert ("but for" in layer) == ("but for" in met)
    preflight = world.run([], mode="preflight", base_checks="skip", **given)
    assert re.search(rf"ok +network +{re.escape(described)}", preflight.log)
    assert re.search(rf"sandbox: network +{re.escape(met)}", preflight.log)


def test_an_agent_that_allows_hosts_needs_them_from_the_input(world: World) -> None:
    narrow(world, "allow")
    done = world.run(solve())
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
    assert '"network" in agent.json of fixer is `allow`, but the inputs list no hosts' in done.outputs["reason"]
    assert "Set `network: allow` and list the hosts in `allowed-hosts`" in done.outputs["reason"]
    assert world.model.bodies == []
    preflight = world.run([], mode="preflight", base_checks="skip")
    assert preflight.exit_code == 2
    assert 'preflight of fixer: network: "network" in agent.json of fixer is' in preflight.log
