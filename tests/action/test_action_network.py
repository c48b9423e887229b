"""The network of a run: the hosts of its tools, and a company's proxy and certificates for the action itself."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import trustme

from tests.checkout import Invocation
from tests.servers.private_network import Proxy, TlsFront, address_of, closed_port, pem_of
from tests.servers.web_pages import Pages
from tests.world import BRANCH, MODEL_KEY, READ_TOKEN, TOKEN, World, answer, bash, by_owner, solve, understood

pytestmark = [pytest.mark.whole, pytest.mark.skipif(sys.platform != "linux", reason="the sandbox of Linux")]

ALLOWED = {"network": "good.example *.fine.example"}


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
    assert "canarycanarystepflow: bad.example is not among the allowed hosts" in results
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
    assert "does not list" not in world.comments()[0]


def test_a_failed_run_names_the_refused_hosts_on_the_issue(world: World, company: Proxy) -> None:
    done = world.run(solve(), **ALLOWED, setup="curl -sSf http://bad.example/")
    assert done.outputs["outcome"] == "misconfigured"
    assert hosts_of(done) == {"bad.example": (0, 1)}
    assert "**Refused**, because the input `network` does not list them: `bad.example`." in (world.comments()[0])
    assert company.requests == []


def test_validators_are_held_as_well(world: World, company: Proxy) -> None:
    world.edit("steps_registry.json", lambda registry: use_command(registry, "curl -sSf http://bad.example/"))
    done = world.run(solve(), **ALLOWED)
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


@pytest.mark.usefixtures("checked_base")
def test_a_preflight_shows_the_rule_and_what_the_checks_were_refused(world: World, company: Proxy) -> None:
    world.edit("steps_registry.json", lambda registry: use_command(registry, "curl -sSf http://bad.example/"))
    done = world.run([], mode="preflight", **ALLOWED)
    assert re.search(r"ok +sandbox: network +closed, but for TCP through the parent to good.example, \*.fine", done.log)
    assert "`setup` and checks were refused some: refused bad.example" in done.log


def test_a_word_that_is_neither_a_network_nor_a_host_is_refused_with_the_fix(world: World) -> None:
    done = world.run(solve(), network="allow")
    assert (done.exit_code, done.outputs["outcome"], world.model.requests) == (2, "misconfigured", [])
    assert "input network: write `full`, `none`, or a list of hosts: 'allow' is neither" in done.outputs["reason"]


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
    preflight = world.run([], mode="preflight", **given)
    assert re.search(rf"ok +network +{re.escape(described)}", preflight.log)
    assert re.search(rf"sandbox: network +{re.escape(met)}", preflight.log)


def test_an_agent_that_allows_hosts_needs_them_from_the_input(world: World) -> None:
    narrow(world, "allow")
    done = world.run(solve())
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
    assert (
        '"network" in agent.json of fixer is `allow`, but the input `network` lists no hosts' in done.outputs["reason"]
    )
    assert "List the hosts in the input `network`, such as `network: pypi`" in done.outputs["reason"]
    assert world.model.bodies == []
    preflight = world.run([], mode="preflight")
    assert preflight.exit_code == 2
    assert 'preflight of fixer: network: "network" in agent.json of fixer is' in preflight.log


GHES, MODEL = "ghes.corp.example", "claude.corp.example"
LOGIN = "ann:open-sesame-42"
PASSWORD = LOGIN.partition(":")[2]


@dataclass
class Corporate:
    """The world's servers, reached as in a company: `inputs` lead there."""

    world: World
    proxy: Proxy
    front: TlsFront
    authority: trustme.CA

    def run(self, environ: dict[str, str], **inputs: str) -> Invocation:
        self.world.runner.environ = environ
        given = {
            "model": {"base-url": f"https://{MODEL}"},
            "github_api_url": f"https://{GHES}/api/v3",
            "github_server_url": f"https://{GHES}",
            "ca_certificates": pem_of(self.authority),
        }
        replies, event = inputs.pop("replies", None) or solve(), inputs.pop("event", None)
        return self.world.run(replies, event, **{**given, **inputs})  # type: ignore[arg-type]

    @property
    def variables(self) -> dict[str, str]:
        return {"HTTPS_PROXY": self.proxy.url_with_login, "NO_PROXY": "localhost,.internal"}


@pytest.fixture
def corporate(world: World) -> Iterator[Corporate]:
    authority = trustme.CA()
    world.github.web_url = f"https://{GHES}"

    def backend(path: str) -> tuple[str, int]:
        if path.startswith("/v1/"):
            return address_of(world.model.url)
        return address_of(world.github.plain_url if path.startswith("/api/") else world.git_server.url)

    with TlsFront(authority, GHES, MODEL, "127.0.0.1", to=backend) as front:
        hosts = {GHES: ("127.0.0.1", front.port), MODEL: ("127.0.0.1", front.port)}
        with Proxy(hosts, login=LOGIN) as proxy:
            yield Corporate(world, proxy, front, authority)


def everything_of(done: Invocation) -> str:
    folder = done.folder
    files = (path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())
    log = done.visible_log
    return "\n".join((log, done.summary, *done.outputs.values(), *files))


def test_a_run_reaches_model_api_and_git_through_the_proxy(corporate: Corporate) -> None:
    done = corporate.run(corporate.variables)
    assert (done.exit_code, done.outputs["outcome"]) == (0, "completed"), done.log
    assert corporate.proxy.targets() == {f"{MODEL}:443", f"{GHES}:443"}
    heads = "".join(requests.head for requests in corporate.proxy.requests)
    assert TOKEN not in heads
    assert MODEL_KEY not in heads
    shown = f"{MODEL}, {GHES} through the proxy {corporate.proxy.url} (HTTPS_PROXY)"
    assert f"[Network] {shown}" in done.log
    assert "[Network] 1 certificate trusted in addition to the public ones, by ca-certificates" in done.log
    assert PASSWORD not in everything_of(done)
    assert BRANCH in corporate.world.branches()
    # All links lead to the server of the inputs.
    assert done.outputs["pull-request-url"].startswith(f"https://{GHES}/o/r/pull/")
    assert done.outputs["comment-url"].startswith(f"https://{GHES}/o/r/issues/7")
    [comment] = corporate.world.comments()
    for text in (comment, done.summary):
        assert "github.com/" not in text.replace("github.com/marketplace", "")
    effects = json.loads((done.folder / "effects.json").read_text())
    assert f"https://{GHES}/o/r/tree/{BRANCH}" in json.dumps(effects)


def test_hosts_in_no_proxy_are_called_directly(corporate: Corporate) -> None:
    here = f"https://127.0.0.1:{corporate.front.port}"
    corporate.world.github.web_url = here
    done = corporate.run(
        corporate.variables | {"NO_PROXY": "127.0.0.1"}, github_api_url=f"{here}/api/v3", github_server_url=here
    )
    assert (done.exit_code, done.outputs["outcome"]) == (0, "completed"), done.log
    assert corporate.proxy.targets() == {f"{MODEL}:443"}
    assert "without the proxy" in done.log


def test_a_certificate_file_of_the_image_counts(corporate: Corporate, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("image") / "corp.pem"
    file.write_text(pem_of(corporate.authority))
    done = corporate.run(corporate.variables | {"SSL_CERT_FILE": str(file)}, ca_certificates="")
    assert (done.exit_code, done.outputs["outcome"]) == (0, "completed"), done.log
    assert "trusted in addition to the public ones, by SSL_CERT_FILE" in done.log


def test_a_certificate_file_of_the_checkout_does_not_count(corporate: Corporate) -> None:
    file = corporate.world.checkout / "corp.pem"
    file.write_text(pem_of(corporate.authority))
    inputs = {"ca_certificates": "", "event": by_owner(), "github_token": "", "read_token": "", "boundary": "dry-run"}
    done = corporate.run(corporate.variables | {"SSL_CERT_FILE": str(file)}, **inputs)  # type: ignore[arg-type]
    assert (done.exit_code, done.outputs["outcome"]) == (1, "model_failed")
    assert "where earlier steps of the job can write, so it is ignored" in done.log
    assert "`ca-certificates`" in done.outputs["reason"]
    assert corporate.world.model.requests == []


Broken = Callable[[Corporate], Invocation]
BROKEN: dict[str, tuple[Broken, str]] = {
    "no authority": (
        lambda corporate: corporate.run(corporate.variables, ca_certificates="", mode="preflight"),
        "in the input `ca-certificates`",
    ),
    "no login": (
        lambda corporate: corporate.run({"HTTPS_PROXY": corporate.proxy.url}, mode="preflight"),
        "needs a user and a password",
    ),
    "proxy down": (
        lambda corporate: corporate.run({"HTTPS_PROXY": f"http://{LOGIN}@127.0.0.1:{closed_port()}"}, mode="preflight"),
        "Check that the proxy http://127.0.0.1:",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_preflight_says_of_model_and_github_what_to_set(corporate: Corporate, case: str) -> None:
    broken, reason = BROKEN[case]
    corporate.world.github.read_token = READ_TOKEN
    corporate.world.runner.inputs["read-token"] = READ_TOKEN
    done = broken(corporate)
    rows = [line for line in done.log.splitlines() if line.startswith("✗ failed")]
    assert [row.split()[2] for row in rows] == ["model", "read-token"], done.log
    assert all(reason in row for row in rows), rows
    assert PASSWORD not in done.visible_log


def test_preflight_has_a_row_for_the_ways(corporate: Corporate) -> None:
    done = corporate.run(corporate.variables, mode="preflight")
    assert done.exit_code == 0, done.log
    assert "✓ ok       network" in done.log


def test_tools_see_no_proxy_unless_pass_env_names_it(corporate: Corporate) -> None:
    look = bash('echo "proxy: ${HTTPS_PROXY:-none}" | tee seen.txt; rm seen.txt')
    done = corporate.run(corporate.variables, replies=[understood(), look, *solve()[1:]])  # type: ignore[arg-type]
    assert done.exit_code == 0, done.log
    assert "proxy: none" in everything_of(done)
    corporate.world.check_out_again()
    done = corporate.run(corporate.variables, replies=[understood(), look, *solve()[1:]], pass_env="HTTPS_PROXY")  # type: ignore[arg-type]
    assert done.exit_code == 0, done.log
    assert PASSWORD not in everything_of(done)
    assert f"proxy: http://***@127.0.0.1:{corporate.proxy.port}" in everything_of(done)


def test_a_proxy_that_cannot_be_used_ends_with_two(corporate: Corporate) -> None:
    done = corporate.run({"HTTPS_PROXY": "socks5://proxy.corp:1080"})
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
    assert "HTTPS_PROXY" in done.outputs["reason"]


def test_addresses_of_two_servers_are_refused_before_anything_is_sent(corporate: Corporate) -> None:
    done = corporate.run(corporate.variables, github_server_url="https://github.com")
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
    assert "two servers" in done.outputs["reason"]
    assert corporate.proxy.requests == []


def plan(corporate: Corporate, environ: dict[str, str], **inputs: str) -> Invocation:
    corporate.world.github.read_token = READ_TOKEN
    return corporate.run(environ, replies=[], mode="plan", many_issues="label: bug", read_token=READ_TOKEN, **inputs)  # type: ignore[arg-type]


def test_a_plan_reads_the_issues_through_the_proxy_and_with_the_certificates(corporate: Corporate) -> None:
    done = plan(corporate, corporate.variables)
    assert (done.exit_code, done.outputs["plan-issues"]) == (0, "[7]"), done.log
    assert corporate.proxy.targets() == {f"{GHES}:443"}
    assert READ_TOKEN not in "".join(requests.head for requests in corporate.proxy.requests)


def test_a_plan_does_not_trust_a_certificate_file_of_the_checkout(corporate: Corporate) -> None:
    file = corporate.world.checkout / "corp.pem"
    file.write_text(pem_of(corporate.authority))
    done = plan(corporate, corporate.variables | {"SSL_CERT_FILE": str(file)}, ca_certificates="")
    assert done.exit_code != 0
    assert "where earlier steps of the job can write, so it is ignored" in done.log
    assert corporate.world.github.requests == []


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"github_api_url": f"http://{GHES}/api/v3"}, "https://"),
        ({"github_server_url": "https://github.com"}, "two servers"),
    ],
)
def test_a_plan_sends_its_token_to_no_address_that_a_run_would_refuse(
    corporate: Corporate, inputs: dict[str, str], words: str
) -> None:
    done = plan(corporate, corporate.variables, **inputs)
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured"), done.log
    assert words in done.outputs["reason"]
    assert corporate.proxy.requests == []
