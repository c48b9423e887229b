"""A policy narrows what inputs and agents ask for, whatever it says, and never widens it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stepflow.definition.loading import load_agent
from stepflow.domain.agent.agent_settings import Rung
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.json import JsonValue
from stepflow.domain.words import MODEL_ALIASES, Effort, Network, Permission, Provider
from stepflow.errors import InputError, Refused
from stepflow.model.models import MODEL_IDS
from stepflow.run.start.event import EventPayload
from stepflow.run.start.input_maps import SharedLimits
from stepflow.run.start.input_values import NetworkAccess, known_keys
from stepflow.run.start.inputs import Inputs, read_inputs
from stepflow.run.start.policy import Policy
from stepflow.run.start.trigger import Skip, Trigger, find_trigger
from stepflow.sandbox.egress.allowed_hosts import parse_allowed_hosts
from tests.tried import tried
from tests.world import SOURCE

#: Hosts of the input `network` that overlap in every way, and places that they may lead to.
HOSTS = (
    "pypi",
    "pypi.org",
    "files.pythonhosted.org",
    "*.example.org",
    "a.example.org",
    "*.a.example.org",
    "x.org:8443",
)
HOSTS += ("a.example.org:8443", "*.example.org:443", "10.0.0.1")
NAMES = ("pypi.org", "files.pythonhosted.org", "example.org", "a.example.org", "b.a.example.org", "x.org", "10.0.0.1")
PLACES = tuple((name, port) for name in NAMES for port in (443, 80, 8443))
LOGINS = ("ann", "bob", "renovate[bot]")
RUNGS = tuple(f"{model}{effort}" for model in (*MODEL_ALIASES, MODEL_IDS["opus"]) for effort in ("", ":low", ":high"))
DOLLARS = st.sampled_from([0.5, 2, 5, 7.25, 1000])
PERMISSIONS = st.sampled_from([each.value for each in Permission if each is not Permission.NONE])
NETWORKS: st.SearchStrategy[JsonValue] = st.one_of(
    st.sampled_from(["none", "full"]), st.lists(st.sampled_from(HOSTS), min_size=1, max_size=4)
)


@pytest.fixture(scope="module")
def agent() -> AgentDefinition:
    return load_agent("fixer", root=SOURCE)


def lists_of(words: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(words), min_size=1, max_size=3)


#: What a policy limits too.
LIMITS: st.SearchStrategy[dict[str, JsonValue]] = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("usd", "usd-per-issue", "usd-per-day", "usd-per-month"), DOLLARS),
        "runs-per-person-per-day": st.integers(1, 9),
    },
)

#: Each key, or the keys that belong together, by what it can be.
KEYS: dict[str, st.SearchStrategy[dict[str, JsonValue]]] = {
    "enabled": st.booleans().map(lambda on: {"enabled": on}),
    "agents": st.dictionaries(st.sampled_from(["fixer", "builtin/fix"]), st.sampled_from(["any", "0" * 64])).map(
        lambda agents: {"agents": {**agents}}
    ),
    "models": lists_of(RUNGS).map(lambda rungs: {"models": [*rungs]}),
    "network": NETWORKS.map(lambda network: {"network": network}),
    "limits": LIMITS.map(lambda limits: {"limits": limits}),
    "start": st.fixed_dictionaries({}, optional={"min-permission": PERMISSIONS, "by": lists_of(LOGINS)}).map(
        lambda start: {"start": start}
    ),
}


@st.composite
def policies(draw: st.DrawFn) -> dict[str, JsonValue]:
    keys = draw(st.lists(st.sampled_from(sorted(KEYS)), unique=True, min_size=1))
    return {key: value for name in keys for key, value in draw(KEYS[name]).items()}


@st.composite
def given_inputs(draw: st.DrawFn) -> dict[str, object]:
    network = draw(NETWORKS)
    return {
        "network": " ".join(map(str, network)) if isinstance(network, list) else network,
        "limits": draw(LIMITS),
        "start": {"min-permission": draw(PERMISSIONS)},
        "model": draw(st.sampled_from(["", *MODEL_ALIASES])),
    }


def written(policy: dict[str, JsonValue]) -> str:
    return yaml.safe_dump(policy, sort_keys=False)


def policy_of(policy: dict[str, JsonValue]) -> Policy:
    read = read_inputs({"policy": written(policy)}).policy
    assert read is not None
    return read


def reached(network: NetworkAccess | None) -> set[tuple[str, int]]:
    """The places that tools can reach."""
    if network and network.reach is Network.ALLOW:
        allowed = parse_allowed_hosts(network.hosts)
        return {place for place in PLACES if any(host.covers(*place) for host in allowed)}
    return set() if network and network.reach is Network.NONE else set(PLACES)


def most(dollars: float | None) -> float:
    return float("inf") if dollars is None else dollars


def test_every_key_of_a_policy_is_tried_here() -> None:
    assert {*known_keys(Policy)} == {*KEYS}


@tried(100)
@given(asked=given_inputs(), policy=policies())
def test_no_policy_widens_an_input(asked: dict[str, object], policy: dict[str, JsonValue]) -> None:
    before, after, limits = (
        read_inputs(asked),
        read_inputs({**asked, "policy": written(policy)}),
        policy_of(policy),
    )
    assert reached(after.network) <= reached(before.network) & reached(limits.network)
    # An entry keeps its form: a name that is written out may lead to a private address, and a suffix may not.
    assert before.network.reach is Network.FULL or {*after.network.hosts} <= {*before.network.hosts}
    for name in SharedLimits.model_fields:
        wanted = min(most(getattr(before.limits, name)), most(getattr(limits.limits, name)))
        assert most(getattr(after.limits, name)) == wanted
    least = limits.start.min_permission or Permission.NONE
    assert after.start.min_permission.rank == max(before.start.min_permission.rank, least.rank)
    narrowed = {"policy", "network", "start", "limits"}
    assert before.model_dump(exclude=narrowed) == after.model_dump(exclude=narrowed)


@pytest.mark.whole
@tried(100)
@given(
    policy=policies(),
    models=lists_of(RUNGS),
    fallback=st.none() | st.sampled_from(RUNGS),
    effort=st.none() | st.sampled_from([Effort.LOW, Effort.HIGH]),
    chosen=st.none() | st.sampled_from(MODEL_ALIASES),
)
def test_no_policy_adds_a_rung_to_a_ladder(
    policy: dict[str, JsonValue],
    models: list[str],
    fallback: str | None,
    effort: Effort | None,
    chosen: str | None,
    agent: AgentDefinition,
) -> None:
    steps = {name: replace(step, effort=effort) for name, step in agent.steps.items()}
    rungs = tuple(map(Rung.parse, dict.fromkeys(models)))
    last = Rung.parse(fallback, fallback=True) if fallback else None
    asked, limits = replace(agent, steps=steps, models=rungs, fallback=last), policy_of(policy)
    try:
        narrowed = limits.narrow_agent(asked, "fixer", chosen, Provider.ANTHROPIC)
    except Refused:
        return
    allowed = [*map(Rung.parse, limits.models or ())]
    for step, ladder in narrowed.ladders(chosen).items():
        assert ladder.rungs
        assert not ladder.rungs[0].fallback
        assert ladder.owner == asked.ladders(chosen)[step].owner
        # The same rungs in the same order, and each one is allowed.
        remaining = iter(asked.ladders(chosen)[step].rungs)
        assert all(rung in remaining for rung in ladder.rungs)
        for rung in ladder.rungs if limits.models else ():
            its = MODEL_IDS.get(rung.model, rung.model), rung.effort or effort
            assert any((MODEL_IDS.get(a.model, a.model), a.effort or its[1]) == its for a in allowed)


@pytest.mark.whole
@tried(100)
@given(policy=policies(), more=policies(), actor=st.sampled_from(["", *LOGINS]))
def test_a_further_key_lets_nobody_start_and_no_agent_run(
    policy: dict[str, JsonValue], more: dict[str, JsonValue], actor: str
) -> None:
    before, after = policy_of(policy), policy_of({**more, **policy})
    assert not before.objection_to(actor) or after.objection_to(actor)
    for name in ("fixer", "builtin/fix", "other"):
        assert not before.objection_to_agent(name) or after.objection_to_agent(name)


@pytest.mark.parametrize(
    ("asked", "policy", "expected"),
    [
        ({}, "network: [pypi, '*.example.org']", (Network.ALLOW, ("pypi", "*.example.org"))),
        # `pypi` stands for two hosts.
        ({"network": "pypi x.org"}, "network: [pypi.org, x.org]", (Network.ALLOW, ("x.org",))),
        (
            {"network": "pypi.org a.example.org evil.example"},
            "network: [pypi, '*.example.org']",
            (Network.ALLOW, ("pypi.org", "a.example.org")),
        ),
        # What the policy covers in part only goes, and without a host nothing is left of the network.
        (
            {"network": "*.pypi.org"},
            "network: pypi",
            (Network.NONE, ()),
        ),
        ({"network": "pypi"}, "network: none", (Network.NONE, ())),
        # A proof reaches nothing, unless the inputs let it.
        ({"mode": "prove"}, "network: [pypi]", (Network.NONE, ())),
        ({"mode": "prove", "network": "full"}, "network: [pypi]", (Network.ALLOW, ("pypi",))),
    ],
)
def test_the_narrower_network_applies(asked: dict[str, str], policy: str, expected: object) -> None:
    inputs = read_inputs({**asked, "policy": policy})
    assert (inputs.network.reach, inputs.network.hosts) == expected


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("modles: [opus]", 'there is no key `modles` (did you mean "models"?); it knows enabled, agents, models'),
        ("agents:", "`agents` has no value: give it one, or leave the key out"),
        ("agents: { fixer: 4f0c }", "fixer: write the digest of its definition, 64 hexadecimal digits"),
        ("agents: { ../fixer: any }", "'../fixer' is not an agent's name"),
        ("agents: fixer", "agents: must be a map"),
        ("false", "write a YAML map"),
    ],
)
def test_a_policy_with_a_mistake_stops_the_run_and_says_what_to_do(policy: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read_inputs({"policy": policy})
    assert "input policy" in str(caught.value)
    assert words in str(caught.value)
    assert caught.value.hint == "Correct the variable STEPFLOW_POLICY and start again."


@pytest.mark.parametrize(
    ("policy", "anyone"),
    [
        ("start: {min-permission: read}", False),
        ("start: {min-permission: write}\nmodels: [opus, sonnet, haiku]", False),
        ("models: [opus, sonnet, haiku]", True),
        ("limits: {usd: 2}", True),
        ("start: {by: [ann]}", True),
    ],
)
def test_an_agent_for_everybody_asks_for_the_permission_of_the_policy(policy: str, *, anyone: bool) -> None:
    triage, limits = load_agent("builtin/triage"), read_inputs({"policy": policy}).policy
    assert limits is not None
    assert triage.anyone_may_start
    assert limits.narrow_agent(triage, "builtin/triage", None, Provider.ANTHROPIC).anyone_may_start is anyone


@pytest.mark.parametrize(
    ("agents", "runs"),
    [
        ("fixer: {digest}", True),
        ("fixer: [{other}, {digest}]", True),
        ("fixer: [{digest}, {other}]", True),
        ("fixer: [{other}, any]", True),
        ("builtin/fix: any, fixer: {other}", False),
        ("builtin/fix: {digest}, fixer: {other}", False),
    ],
)
def test_a_version_runs_if_any_of_the_agents_digests_is_its_own(
    agents: str, agent: AgentDefinition, *, runs: bool
) -> None:
    written = agents.format(digest=agent.digest, other="a" * 64)
    limits = read_inputs({"policy": f"agents: {{ {written} }}"}).policy
    assert limits is not None
    if runs:
        assert limits.narrow_agent(agent, "fixer", None, Provider.ANTHROPIC) == agent
    else:
        with pytest.raises(Refused, match=f"This one has the digest {agent.digest}"):
            limits.narrow_agent(agent, "fixer", None, Provider.ANTHROPIC)


def test_a_fallback_alone_is_no_ladder(agent: AgentDefinition) -> None:
    """It takes over after a refusal, and would never be asked."""
    limits = policy_of({"models": ["haiku"]})
    laddered = replace(agent, models=(Rung.parse("opus"),), fallback=Rung.parse("haiku", fallback=True))
    with pytest.raises(Refused, match=r"the policy allows only the models haiku, and step .* has only opus"):
        limits.narrow_agent(laddered, "fixer", None, Provider.ANTHROPIC)


@pytest.mark.parametrize(
    ("asked", "policy", "expected"),
    [
        ("read", "start: {min-permission: admin}", Permission.ADMIN),
        ("admin", "start: {min-permission: read}", Permission.ADMIN),
        ("maintain", "start: {by: [ann]}", Permission.MAINTAIN),
    ],
)
def test_the_higher_permission_applies(asked: str, policy: str, expected: Permission) -> None:
    assert read_inputs({"start": f"min-permission: {asked}", "policy": policy}).start.min_permission is expected


def start(inputs: Inputs, login: str) -> Trigger | Skip:
    event = EventPayload.model_validate({"sender": {"login": login}})
    return find_trigger("workflow_dispatch", event, inputs)


def test_who_is_not_listed_starts_nothing() -> None:
    inputs = read_inputs({"agent": "fixer", "policy": "start: {by: [Ann, 'renovate[bot]']}"})
    assert isinstance(start(inputs, "ann"), Trigger)
    assert start(inputs, "bob") == Skip(
        reason="the policy does not let bob start a run; `start.by` in STEPFLOW_POLICY lists who may"
    )
    assert start(inputs, "") == Skip(
        reason="the policy lists who may start a run, and it is not known who does; set GITHUB_ACTOR"
    )
    # The name of a bot is not that of a person.
    assert isinstance(start(inputs, "renovate"), Skip)
