"""A run of the whole action with a collector: what it receives, what it cannot change, and what never reaches it."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme

from stepflow.journal import iter_journal
from stepflow.telemetry.spans import build_trace
from tests.servers.collector import CollectorServer, accept, attributes_of, busy, drip, hang
from tests.servers.loopback import Handler
from tests.servers.private_network import Proxy, TlsFront, address_of, closed_port, pem_of
from tests.world import MODEL_KEY, TOKEN, World, answer, bash, label_event, solve, understood

pytestmark = pytest.mark.whole

HEADER_TOKEN = "otel-token-of-a-test-0123456789"
PASSWORD = "otel-password-of-a-test"
#: In every form in which an attribute could hold one.
CANARIES = (MODEL_KEY, TOKEN, HEADER_TOKEN, PASSWORD)


def in_any_form(secret: str, text: str) -> bool:
    """Whether the text holds the secret, as it is, in hex, or in base64."""
    encoded = b64encode(secret.encode()).decode().rstrip("=")[:-1]
    return any(form in text for form in (secret, secret.encode().hex(), encoded))


def test_a_collector_receives_the_run_after_everything_else_was_written(world: World) -> None:
    outputs_then: list[str] = []

    def look(handler: Handler, number: int) -> None:
        outputs_then.append((world.runner.folder / "output-0").read_text())
        accept(handler, number)

    with CollectorServer(look) as server:
        done = world.run(
            solve(), telemetry={"endpoint": server.url, "headers": f"Authorization: Bearer {HEADER_TOKEN}"}
        )
    assert (done.exit_code, done.outputs["outcome"]) == (0, "completed"), done.log
    assert all("outcome" in text for text in outputs_then)
    assert {request[1]["authorization"] for request in server.requests} == {f"Bearer {HEADER_TOKEN}"}
    trace = build_trace(iter_journal(done.folder / "journal.jsonl"))
    assert [span.name for span in server.spans()] == [span.name for span in trace.spans]
    names = {span.name.partition(" ")[0] for span in server.spans()}
    assert names == {"invoke_agent", "step", "chat", "execute_tool", "validate", "effect"}
    run = attributes_of(server.spans()[0])
    assert run["stepflow.cost.usd"] == pytest.approx(float(done.outputs["cost-usd"]), abs=1e-5)
    assert run["gen_ai.usage.input_tokens"] == int(done.outputs["tokens-in"])
    assert attributes_of(server.spans()[2])["gen_ai.provider.name"] == "anthropic"
    assert "The world is greeted now." not in server.text()
    assert "stepflow.runs" in server.metrics()
    assert "[Telemetry]" not in done.log


def test_no_secret_reaches_a_collector_and_no_header_anything_else(world: World) -> None:
    """The model and its tools say every secret, in several forms, and the trace has their content."""
    basic = b64encode(f"ann:{PASSWORD}".encode()).decode()
    headers = f"Authorization: Bearer {HEADER_TOKEN}\nX-Other: Basic {basic}"
    said = "; ".join((*CANARIES, *(secret.encode().hex() for secret in CANARIES), basic))
    replies = [
        bash(f"printf '%s' '{said}'; env; cat /proc/self/environ"),
        answer("initial.issue", "next", understanding=said),
        bash(f"echo '{said}' >&2; false"),
        answer("continuation.issue", "abort", summary=said),
    ]
    with CollectorServer() as server:
        done = world.run(replies, telemetry={"endpoint": server.url, "headers": headers, "content": "true"})
    assert done.outputs["outcome"] == "aborted", done.log
    received = server.text()
    assert "printf" in received, "the content is not there"
    folder = done.folder
    files = {path.name: path.read_text("utf-8", "replace") for path in folder.rglob("*") if path.is_file()}
    log = done.visible_log
    places = {**files, "log": log, "summary": done.summary, "outputs": str(done.outputs), "received": received}
    places["comments"] = str(world.comments())
    for name, text in places.items():
        assert [secret for secret in CANARIES if in_any_form(secret, text)] == [], name
    assert f"::add-mask::{HEADER_TOKEN}" in done.log


@pytest.mark.parametrize("answer_", [hang, drip, busy, None], ids=["hangs", "drips", "busy", "dead"])
def test_a_dead_or_slow_collector_costs_five_seconds_at_most_and_changes_nothing(
    world: World, answer_: Callable[[Handler, int], None] | None, show: Callable[[str], None]
) -> None:
    with CollectorServer(answer_) as server:
        url = server.url if answer_ else f"http://127.0.0.1:{closed_port()}"
        script = [answer("initial.issue", "abort", understanding="no")]
        done = world.run(script, telemetry={"endpoint": url})
        waited = time.time() - (world.runner.folder / "output-0").stat().st_mtime
    assert (done.exit_code, done.outputs["outcome"]) == (1, "aborted"), done.log
    show(f"a collector that does not answer cost {waited:.1f} s")
    assert waited < 5 + 2, "with what a busy machine takes"
    (warning,) = [line for line in done.log.splitlines() if "[Telemetry]" in line]
    assert warning.startswith("::warning")
    assert f"could not be sent to {url}: it " in warning


def test_a_collector_is_reached_through_the_proxy_of_the_run_and_trusted_by_its_certificates(world: World) -> None:
    host, authority = "collector.corp.example", trustme.CA()
    with ExitStack() as stack:
        server = stack.enter_context(CollectorServer())
        front = stack.enter_context(TlsFront(authority, host, to=lambda _: address_of(server.url)))
        proxy = stack.enter_context(Proxy({host: ("127.0.0.1", front.port)}, login="ann:open-sesame-42"))
        world.runner.environ = {"HTTPS_PROXY": proxy.url_with_login}
        given = {"telemetry": {"endpoint": f"https://{host}", "headers": f"X-Token: {HEADER_TOKEN}"}}
        script = [answer("initial.issue", "abort", understanding="no")]
        done = world.run(script, **given, ca_certificates=pem_of(authority))
        assert "[Telemetry]" not in done.log
        assert proxy.targets() == {f"{host}:443"}
        heads = "".join(requests.head for requests in proxy.requests)
        distrusted = world.run(script, label_event(), **given)
    assert [path for path, _, _ in server.requests] == ["/v1/traces", "/v1/metrics"]
    assert HEADER_TOKEN not in heads
    assert "its certificate was rejected through the proxy" in distrusted.log
    assert "open-sesame-42" not in distrusted.log.replace("::add-mask::open-sesame-42", "").replace(
        "::add-mask::ann:open-sesame-42", ""
    )


def test_a_resumed_run_is_one_trace(world: World, tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    with CollectorServer() as server:
        first = world.run([understood()], run_folder=folder, telemetry={"endpoint": server.url})
        assert first.outputs["outcome"] == "model_failed", first.log
        before = server.spans()
        done = world.run(solve()[1:], label_event(), resume=folder, telemetry={"endpoint": server.url})
    assert done.outputs["outcome"] == "completed", done.log
    spans = server.spans()[len(before) :]
    assert {span.trace_id for span in spans} == {span.trace_id for span in before}
    assert {span.span_id for span in before} <= {span.span_id for span in spans}
    tokens = [_tokens(message) for message in server.messages("/v1/metrics")]
    assert sum(tokens) == int(done.outputs["tokens-in"])
    assert all(tokens)


def _tokens(message: object) -> int:
    (resource,) = message.resource_metrics  # type: ignore[attr-defined]
    metrics = {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}
    points = metrics["gen_ai.client.inference.usage.input_tokens"].sum.data_points
    return int(sum(point.as_int or point.as_double for point in points))


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        ({"telemetry": {"endpoint": "collector:4318"}}, "it names no host"),
        ({"telemetry": {"endpoint": "http://collector.example:4318", "headers": "A: secret-b"}}, "travel unencrypted"),
        ({"telemetry": {"endpoint": "http://collector.example:4318", "content": "true"}}, "travel unencrypted"),
        ({"telemetry": {"endpoint": "https://ann:secret@collector.example"}}, "it carries a user name or a password"),
        ({"telemetry": {"endpoint": "https://collector.example", "content": "yes"}}, "write true or false"),
        ({"telemetry": {"endpoint": "https://collector.example", "headers": "secret-word"}}, "write a YAML map"),
    ],
)
def test_a_wrong_collector_is_refused_before_the_run(world: World, inputs: dict[str, str], problem: str) -> None:
    done = world.run(solve(), **inputs)
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured"), done.log
    assert problem in done.outputs["reason"]
    assert "ann:secret" not in done.outputs["reason"]
    assert world.model.bodies == []


def test_a_preflight_tells_of_the_collector_and_does_not_ask_it(world: World) -> None:
    with CollectorServer() as server:
        done = world.runner.run(
            label_event(), mode="preflight", telemetry={"endpoint": server.url, "headers": f"X-Token: {HEADER_TOKEN}"}
        )
    assert f"sent to {server.url} with X-Token at the end, without prompts and answers" in done.log
    assert HEADER_TOKEN not in done.log.replace(f"::add-mask::{HEADER_TOKEN}", "")
    assert server.requests == []
