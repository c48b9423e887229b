"""Each provider's form on the wire, checked by a server that refuses any other; its errors, and its logins."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import anthropic
import pytest

from stepflow.domain.conversation import ModelFault, ModelTurn
from stepflow.domain.words import Provider
from stepflow.errors import InputError
from stepflow.model.anthropic_model import AnthropicModel
from stepflow.model.logins import ModelAccess, WorkloadIdentity, vertex_url
from stepflow.model.models import UnlistedModel, resolve_model
from tests.model.asking import ask, fault_of
from tests.servers.dialects import OLD_ON_BEDROCK, FederatedDialect
from tests.servers.messages_api import Answer, Drop, Failure, MessagesApi, Reply, calls, says
from tests.servers.providers import AWS_KEYS, IDS, PROVIDERS, ProviderAccess, open_access

pytestmark = pytest.mark.whole

Opened = tuple[AnthropicModel, MessagesApi, ProviderAccess]


@pytest.fixture
def open_model(tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """A model over one of the ways, with a server that answers with the replies."""
    with ExitStack() as stack:

        def begin(name: str, *replies: Reply, login: dict[str, str] | None = None) -> Opened:
            service = stack.enter_context(open_access(name, tmp_path))
            api = stack.enter_context(MessagesApi(replies, dialect=service.dialect))
            identity = WorkloadIdentity(**IDS) if name == "identity" else None
            access = ModelAccess(
                provider=Provider(service.provider),
                api_key=service.inputs.get("anthropic-api-key"),
                base_url=api.url + service.suffix,
                login=service.login | (login or {}),
                identity=identity,
            )
            model = AnthropicModel(access=access, connect_timeout=2, read_timeout=5)
            return stack.enter_context(model), api, service

        yield begin


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_turn_with_a_tool_and_an_answer_comes_over_every_way(name: str, open_model) -> None:
    model, api, service = open_model(name, calls(("bash", {"command": "ls -l é"}), text="I look."), says("Done."))
    first, second = model.ask(ask()), model.ask(ask("And now?"))
    assert isinstance(first, ModelTurn), first
    assert isinstance(second, ModelTurn), second
    assert first.content[1]["input"] == {"command": "ls -l é"}
    assert (second.content[0]["text"], second.stop_reason) == ("Done.", "end_turn")
    assert first.cost_usd
    assert {body["model"] for body in api.bodies} == {resolve_model("sonnet", Provider(service.provider))}
    assert all(request.headers["user-agent"].startswith("Anthropic") for request in api.requests)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("bedrock-key", AWS_KEYS),
        ("vertex-token", {"GOOGLE_CLOUD_PROJECT": "another", "ANTHROPIC_VERTEX_PROJECT_ID": "my-project"}),
        ("foundry-token", {"ANTHROPIC_FOUNDRY_API_KEY": "k"}),
    ],
)
def test_of_several_logins_the_more_special_one_counts(name: str, more: dict[str, str], open_model) -> None:
    model, _, _ = open_model(name, says("Done."), login=more)
    assert isinstance(model.ask(ask()), ModelTurn)


@pytest.mark.parametrize("name", ["bedrock", "bedrock-key"])
@pytest.mark.parametrize("model_id", OLD_ON_BEDROCK)
def test_an_older_model_on_bedrock_gets_the_version_of_the_api_that_it_takes(
    model_id: str, name: str, open_model
) -> None:
    model, _, _ = open_model(name, says("Done."))
    assert isinstance(turn := model.ask(ask(model=model_id)), ModelTurn), turn


def test_a_profile_that_hides_an_older_model_is_asked_again_with_the_older_version(open_model) -> None:
    profile = "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/abc"
    model, _, _ = open_model("bedrock", says("Done."), says("Again."))
    fault = fault_of(model, ask(model=profile))
    assert (fault.transient, "Invalid API version" in fault.reason, profile in fault.reason) == (True, True, True)
    for _ in range(2):
        assert isinstance(turn := model.ask(ask(model=profile)), ModelTurn), turn


@pytest.mark.parametrize(
    ("model_id", "is_advised"),
    [("anthropic.claude-opus-5-5", True), ("global.anthropic.claude-opus-5-5", False), ("opus", False)],
)
def test_a_refusal_by_bedrock_names_the_model_and_advises_nothing_that_is_there(
    model_id: str, *, is_advised: bool, open_model
) -> None:
    model, _, _ = open_model("bedrock", Failure(status=400, error="ValidationException", message="no such thing"))
    hint = fault_of(model, ask(model=model_id)).hint
    assert (resolve_model(model_id, Provider.BEDROCK) in hint, "inference profile" in hint) == (True, is_advised)


#: What a status means is decided for all services alike; what to change differs.
REFUSALS = {429: (True, ""), 503: (True, ""), 403: (False, ""), 404: (False, "model"), 400: (False, "")}


@pytest.mark.parametrize(
    ("name", "status", "transient", "word"),
    [
        (name, status, *meaning)
        for name in ("bedrock", "vertex-token", "foundry", "identity")
        for status, meaning in REFUSALS.items()
        if name == "bedrock" or status in (403, 404)
    ],
)
def test_a_refusal_is_a_fault_that_says_what_to_change_here(
    name: str, status: int, transient: bool, word: str, open_model
) -> None:
    error = {429: "rate_limit_error", 503: "overloaded_error", 403: "permission_error"}
    said = Failure(status=status, error=error.get(status, "invalid_request_error"), message="the service says why")
    model, _, service = open_model(name, said)
    fault = fault_of(model)
    assert (fault.transient, f"answered {status}" in fault.reason) == (transient, True)
    assert "the service says why" in fault.reason
    assert fault.hint
    assert word in fault.hint
    if name != "identity":
        assert "anthropic-api-key" not in fault.hint
        assert "model.base-url" not in fault.hint
    assert [secret for secret in service.secrets() if secret in fault.reason] == []


@pytest.mark.parametrize(
    ("name", "spoilt"),
    [
        (name, spoilt)
        # The two forms of a stream: events of a page, and frames of Bedrock's.
        for name in ("key", "bedrock")
        for spoilt in ({"cut_after": 2}, {"reset_after": 2}, {"garble_at": 1}, {"drop": True})
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_an_answer_that_breaks_off_is_tried_again(name: str, spoilt: dict, open_model) -> None:
    reply = Drop() if "drop" in spoilt else says("half an answer", **spoilt)
    model, _, _ = open_model(name, reply, says("whole"))
    fault = fault_of(model)
    assert fault.transient, fault
    assert isinstance(model.ask(ask()), ModelTurn)


@pytest.mark.parametrize(
    ("kind", "transient"),
    [
        ("throttlingException", True),
        ("internalServerException", True),
        ("serviceUnavailableException", True),
        ("modelTimeoutException", True),
        ("modelStreamErrorException", True),
        ("validationException", False),
    ],
)
def test_an_exception_in_the_middle_of_bedrocks_stream_is_a_fault(kind: str, transient: bool, open_model) -> None:
    broken = Answer(content=says("x").content, extra_events=((2, kind, {"message": "the stream says why"}),))
    model, _, _ = open_model("bedrock", broken)
    fault = fault_of(model)
    assert fault.transient is transient
    assert "the stream says why" in fault.reason


def test_a_wrong_signature_is_refused_with_the_hint_to_the_credentials(open_model) -> None:
    model, _, _ = open_model("bedrock", says("never"), login={"AWS_SECRET_ACCESS_KEY": "another/secret"})
    fault = fault_of(model)
    assert "signature we calculated does not match" in fault.reason
    assert "role-duration-seconds" in fault.hint
    assert not fault.transient


# Login without a key


def test_the_jobs_identity_is_exchanged_once_while_the_token_is_fresh(open_model) -> None:
    model, _, service = open_model("identity", says("a"), says("b"), says("c"))
    for _ in range(3):
        assert isinstance(model.ask(ask()), ModelTurn)
    assert len(service.dialect.exchanges) == 1
    assert service.logins.audiences == ["https://api.anthropic.com"]


def test_a_token_that_is_about_to_expire_is_renewed_with_a_fresh_identity(open_model) -> None:
    model, _, service = open_model("identity", says("a"), says("b"))
    service.dialect.lifetime = 20
    for _ in range(2):
        assert isinstance(model.ask(ask()), ModelTurn)
    assert [exchange["assertion"] for exchange in service.dialect.exchanges] == service.logins.identities
    assert len(service.logins.identities) == 2


def test_the_workspace_of_the_environment_is_part_of_the_exchange(open_model) -> None:
    model, _, service = open_model("identity", says("a"), login={"ANTHROPIC_WORKSPACE_ID": "wrkspc_7"})
    service.dialect.ids = {**IDS, "workspace_id": "wrkspc_7"}
    assert isinstance(model.ask(ask()), ModelTurn)


@pytest.mark.parametrize(("status", "transient"), [(401, False), (403, False), (500, True), (429, True)])
def test_an_exchange_that_is_refused_ends_the_run_or_is_tried_again(status: int, transient: bool, open_model) -> None:
    model, _, service = open_model("identity", says("a"))
    service.dialect.refusal = Failure(status=status, message="the rule does not match")
    fault = fault_of(model)
    assert fault.transient is transient
    assert str(status) in fault.reason
    assert "model.workload-identity" in fault.hint
    assert [secret for secret in service.secrets() if secret in str(fault)] == []


@pytest.mark.parametrize(
    ("status", "body", "transient"),
    [(401, "", False), (503, "", True), (200, "<html>", True), (200, '{"value": ""}', True), (200, "[]", True)],
)
def test_an_identity_service_that_gives_no_token_is_named(status: int, body: str, transient: bool, open_model) -> None:
    model, api, service = open_model("identity", says("a"))
    service.logins.status, service.logins.body = status, body
    fault = fault_of(model)
    assert "identity service" in fault.reason
    assert fault.transient is transient
    assert api.requests == []


def test_an_identity_service_that_cannot_be_reached_is_tried_again(open_model) -> None:
    gone = {"ACTIONS_ID_TOKEN_REQUEST_URL": "http://127.0.0.1:9/identity?api-version=2.0"}
    model, _, _ = open_model("identity", says("a"), login=gone)
    fault = fault_of(model)
    assert fault.transient
    assert "cannot be reached" in fault.reason


# Google's credentials


@pytest.mark.parametrize("name", ["vertex-account", "vertex-identity"])
def test_googles_token_is_kept_while_it_is_fresh_and_renewed_before_it_expires(name: str, open_model) -> None:
    model, _, service = open_model(name, says("a"), says("b"), says("c"))
    assert isinstance(model.ask(ask()), ModelTurn)
    service.logins.lifetime = 60
    assert isinstance(model.ask(ask()), ModelTurn)
    assert len(service.logins.google_tokens) == 1
    model_, _, again = open_model(name, says("a"), says("b"))
    again.logins.lifetime = 60
    for _ in range(2):
        assert isinstance(model_.ask(ask()), ModelTurn)
    assert len(again.logins.google_tokens) == 2


@pytest.mark.parametrize("name", ["vertex-account", "vertex-identity"])
def test_a_login_that_google_refuses_is_a_fault(name: str, open_model) -> None:
    model, api, service = open_model(name, says("a"))
    service.logins.status, service.logins.body = (
        400,
        json.dumps({"error": "invalid_grant", "error_description": "no such"}),
    )
    fault = fault_of(model)
    assert "login at Google failed" in fault.reason
    assert not fault.transient
    assert api.requests == []


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ({"type": "external_account_authorized_user"}, "kind"),
        ({"type": "external_account", "credential_source": {"executable": {"command": "id"}}}, "kind"),
        ({"type": "service_account", "client_email": "a@b"}, "is not a complete service_account"),
        ({}, "kind"),
    ],
)
def test_credentials_of_google_that_cannot_be_used_are_refused_at_once(
    content: dict, word: str, tmp_path: Path
) -> None:
    path = tmp_path / "creds.json"
    path.write_text(json.dumps({"project_id": "p", **content}))
    login = {"CLOUD_ML_REGION": "global", "GOOGLE_APPLICATION_CREDENTIALS": str(path)}
    with pytest.raises(InputError, match=word):
        AnthropicModel(access=ModelAccess(provider=Provider.VERTEX, login=login))


# Around the call


@pytest.mark.parametrize("name", [name for name in PROVIDERS if name not in ("key", "identity")])
def test_a_service_without_a_list_of_models_says_so_to_preflight(name: str, open_model) -> None:
    model, _, _ = open_model(name)
    assert isinstance(model.probe("sonnet"), UnlistedModel)


def test_preflight_tells_of_a_login_that_google_refuses(open_model) -> None:
    model, _, service = open_model("vertex-account")
    service.logins.status, service.logins.body = 400, "{}"
    fault = model.probe("sonnet")
    assert isinstance(fault, ModelFault)
    assert "login at Google" in fault.reason


@pytest.mark.parametrize("name", [name for name in PROVIDERS if name != "key"])
def test_the_environment_of_the_process_leads_nowhere_else(name: str, open_model, monkeypatch) -> None:
    for variable in ("BEDROCK", "VERTEX", "FOUNDRY"):
        monkeypatch.setenv(f"ANTHROPIC_{variable}_BASE_URL", "https://evil.example")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://evil.example")
    monkeypatch.setenv("ANTHROPIC_FOUNDRY_RESOURCE", "evil")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-evil: 1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://evil.example")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    model, api, _ = open_model(name, says("a"))
    assert isinstance(model.ask(ask()), ModelTurn)
    assert all("x-evil" not in request.headers for request in api.requests)


def test_an_aws_profile_that_is_not_there_is_named_at_once(monkeypatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    login = {"AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    with pytest.raises(InputError, match="nobody"):
        AnthropicModel(access=ModelAccess(provider=Provider.BEDROCK, login=login))


@pytest.mark.parametrize("region", ["global", "us", "eu", "us-east5"])
def test_the_addresses_are_those_of_the_sdk(region: str, monkeypatch) -> None:
    for name in ("ANTHROPIC_VERTEX_BASE_URL", "ANTHROPIC_BEDROCK_BASE_URL", "ANTHROPIC_FOUNDRY_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with anthropic.AnthropicVertex(region=region, project_id="p", access_token="t") as client:
        assert str(client.base_url).rstrip("/") == vertex_url(region)
    login = {"AWS_REGION": region, "AWS_BEARER_TOKEN_BEDROCK": "b", "ANTHROPIC_FOUNDRY_RESOURCE": region}
    with anthropic.AnthropicBedrock(aws_region=region, api_key="b") as bedrock:
        made = AnthropicModel(access=ModelAccess(provider=Provider.BEDROCK, login=login))
        assert str(bedrock.base_url).rstrip("/") == made.base_url
    with anthropic.AnthropicFoundry(resource=region, api_key="k") as foundry:
        made = AnthropicModel(
            access=ModelAccess(provider=Provider.FOUNDRY, login={**login, "ANTHROPIC_FOUNDRY_API_KEY": "k"})
        )
        assert str(foundry.base_url).rstrip("/") == made.base_url


def test_tokens_that_were_given_are_in_no_message(open_model) -> None:
    model, _, service = open_model("identity", says("a"), Failure(status=400, message="you sent sk-ant-oat01-given-1"))
    assert isinstance(model.ask(ask()), ModelTurn)
    assert isinstance(service.dialect, FederatedDialect)
    fault = fault_of(model)
    assert [secret for secret in service.secrets() if secret in str(fault)] == []


@pytest.mark.parametrize("name", PROVIDERS)
def test_only_the_api_itself_is_asked_to_renew_what_it_has_cached(name: str, open_model) -> None:
    model, api, service = open_model(name)
    renewed = model.renew(ask(), 1)
    asked = Provider(service.provider) is Provider.ANTHROPIC
    assert isinstance(renewed, ModelTurn) is asked
    assert len(api.bodies) == asked
