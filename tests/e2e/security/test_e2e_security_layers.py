"""Every attack against every layer: with all on nothing comes through, with one off exactly what that one stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stepflow.sandbox.isolation import LAYERS
from tests.e2e.hosted_runner import RUNNER
from tests.e2e.security.attacks import ATTACKS, CLOSED_PARENT, OPEN_SOCKET, Attack
from tests.e2e.security.trial import Configuration, Tried, run_driver

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.hosted_runner import HostedRunner

pytestmark = [pytest.mark.e2e_security, pytest.mark.timeout(900)]
ROOT = (0, 0)
ONE_OFF = {layer: Configuration(disabled=(layer,)) for layer in LAYERS}
SEVERAL_OFF = {
    "uid, landlock": Configuration(disabled=("uid", "landlock")),
    "everything": Configuration(disabled=LAYERS, network="full"),
    "uid, landlock, but the parent is closed": Configuration(disabled=("uid", "landlock"), closed_parent=True),
}
CONFIGURATIONS = {"nothing": Configuration(), **ONE_OFF, **SEVERAL_OFF}
#: What the owner of the checkout makes a difference for.
FOR_ROOT = ("nothing", "uid", "gid", "limits", "landlock", "everything")
#: The engine's own filter on system calls stops some of what ours does, and the newer the engine the more of it. What
#: ours stops is seen without the engine's, and with the network open, whose filter would stop it too.
FILTERS = {
    "nothing": Configuration(network="full"),
    "seccomp": Configuration(disabled=("seccomp",), network="full"),
    "seccomp, uid": Configuration(disabled=("seccomp", "uid"), network="full"),
}


@pytest.fixture(scope="module", params=[RUNNER, ROOT], ids=["a user's checkout", "root's checkout"])
def owner(request: pytest.FixtureRequest) -> tuple[int, int]:
    """Who the checkout belongs to."""
    return request.param


@pytest.fixture(scope="module")
def matrix(new_runner: Callable[..., HostedRunner], owner: tuple[int, int]) -> dict[str, Tried]:
    """Every attack in every configuration, under the engine's default profile."""
    names = CONFIGURATIONS if owner == RUNNER else FOR_ROOT
    return run_driver(new_runner(owner), {name: CONFIGURATIONS[name] for name in names})


@pytest.fixture(scope="module")
def filters(new_runner: Callable[..., HostedRunner]) -> dict[str, Tried]:
    """Every attack with and without our own filter, where the engine has none."""
    return run_driver(new_runner(RUNNER), FILTERS, options=("--security-opt=seccomp=unconfined",))


def test_with_every_layer_on_no_attack_comes_through(matrix: dict[str, Tried], filters: dict[str, Tried]) -> None:
    names = {attack.name for attack in ATTACKS}
    assert _outputs(matrix["nothing"], matrix["nothing"].came_through & names) == {}
    open_network = {attack.name for attack in ATTACKS if attack.stopped_by == ("network",)}
    assert _outputs(filters["nothing"], filters["nothing"].came_through & names - open_network) == {}
    assert matrix["nothing"].warnings == ()


def test_exactly_the_attacks_come_through_whose_layers_are_off(
    matrix: dict[str, Tried], owner: tuple[int, int]
) -> None:
    wrong: set[tuple[str, str, str]] = set()
    for name, tried in matrix.items():
        off = CONFIGURATIONS[name].off
        sure = [attack for attack in ATTACKS if not _depends_on_the_machine(attack, off)]
        wanted = {attack.name for attack in sure if attack.comes_through(off)}
        succeeded = tried.came_through & {attack.name for attack in sure}
        wrong |= {(name, *said) for said in _outputs(tried, succeeded ^ wanted).items()}
    assert wrong == set()


def test_each_layer_alone_stops_something(matrix: dict[str, Tried], filters: dict[str, Tried]) -> None:
    stops = {layer: matrix[layer].came_through - matrix["nothing"].came_through for layer in matrix.keys() & LAYERS}
    if "seccomp" in stops:
        stops["seccomp"] |= filters["seccomp"].came_through - filters["nothing"].came_through
    assert {layer for layer, attacks in stops.items() if not attacks} == set()


def test_a_closed_parent_stops_what_user_and_landlock_would_have_stopped(matrix: dict[str, Tried]) -> None:
    closed = "uid, landlock, but the parent is closed"
    if closed in matrix:
        saved = matrix["uid, landlock"].came_through - matrix[closed].came_through
        assert saved == {attack.name for attack in ATTACKS if CLOSED_PARENT in attack.stopped_by}


def test_what_the_filter_on_system_calls_stops(filters: dict[str, Tried]) -> None:
    ours = [attack for attack in ATTACKS if "seccomp" in attack.stopped_by]
    for name in ("seccomp", "seccomp, uid"):
        possible = [attack for attack in ours if attack.comes_through({*FILTERS[name].off, "network"})]
        sure = {attack.name for attack in possible if attack.everywhere}
        assert sure
        came_through = filters[name].came_through - filters["nothing"].came_through
        assert sure <= came_through & {attack.name for attack in ours} <= {attack.name for attack in possible}


def test_every_attack_is_a_real_one_that_succeeds_where_nothing_stops_it(
    matrix: dict[str, Tried], filters: dict[str, Tried]
) -> None:
    sure = {attack.name for attack in ATTACKS if attack.everywhere}
    never = sure - matrix["everything"].came_through - filters["seccomp"].came_through
    assert never == {attack.name for attack in ATTACKS if attack.stopped_by == ("the file tools",)}


def test_a_layer_that_is_off_is_reported(matrix: dict[str, Tried]) -> None:
    for layer in matrix.keys() & LAYERS:
        assert matrix[layer].layers[layer] != matrix["nothing"].layers[layer]
        assert f"{layer}: {matrix[layer].layers[layer]}" in matrix[layer].warnings


def test_a_socket_that_everybody_may_use_is_what_no_layer_closes(matrix: dict[str, Tried]) -> None:
    # Such a socket is found by the self-test, which then refuses the run: see test_e2e_security_refusals.py.
    assert matrix["nothing"].attacks[OPEN_SOCKET.name].succeeded


def _depends_on_the_machine(attack: Attack, disabled: tuple[str, ...]) -> bool:
    """Other machines have other groups, and other engines filters of their own."""
    return bool(set(attack.perhaps) & set(disabled)) or "seccomp" in attack.stopped_by


def _outputs(tried: Tried, names: set[str]) -> dict[str, str]:
    return {name: tried.attacks[name].said for name in names}
