"""bench/README.md: the figures as tables, each target next to what was measured."""

from __future__ import annotations

import re
from typing import NamedTuple

from bench.compare import Figures

PEERS = ("pydantic-ai", "LangGraph")


class Target(NamedTuple):
    """`is_met` is None where nothing could be measured."""

    figure: str
    wanted: str
    measured: str
    is_met: bool | None


def replace_tables(page: str, target: str, tables: str) -> str:
    """The page with the newest tables of a target of make; what people wrote around them stays."""
    begin, end = f"<!-- made by `make {target}` -->", f"<!-- end of what `make {target}` made -->"
    whole = re.compile(f"{re.escape(begin)}.*{re.escape(end)}", re.DOTALL)
    if not whole.search(page):
        raise ValueError(f"bench/README.md lacks the line {begin} or {end}")
    return whole.sub(lambda _: f"{begin}\n\n{tables}\n\n{end}", page)


def comparison(compared: dict[str, Figures]) -> str:
    """A row for each runner."""
    head = "| | first request, s | per step, ms | peak memory, MB |"
    rows = [
        f"| {name} | {each.first_s:.2f} | {each.step_ms:.0f} | {each.peak_mb:.0f} |" for name, each in compared.items()
    ]
    return "\n".join((head, "| --- | ---: | ---: | ---: |", *rows))


def judge(compared: dict[str, Figures]) -> list[Target]:
    """The targets that the peers set."""
    own = compared["stepflow"]

    def beside_best_peer(name: str, key: str, most: float) -> Target:
        best = min(PEERS, key=lambda peer: getattr(compared[peer], key))
        return at_most(name, getattr(own, key) / getattr(compared[best], key), most, f"× {best}, the best peer")

    return [
        beside_best_peer("time to first request", "first_s", 1),
        beside_best_peer("peak memory, all processes", "peak_mb", 1),
        beside_best_peer("time per step, sandbox and snapshots on", "step_ms", 1.25),
    ]


def at_most(figure: str, value: float, most: float, unit: str, digits: int = 2) -> Target:
    """A target that is a bound."""
    return Target(figure, f"≤ {most:g} {unit}", f"{value:.{digits}f} {unit}", value <= most)


def target_table(targets: list[Target]) -> str:
    """A row for each target."""
    words = {True: "met", False: "**not met**", None: "not measured"}
    rows = [f"| {each.figure} | {each.wanted} | {each.measured} | {words[each.is_met]} |" for each in targets]
    return "\n".join(("| figure | target | measured | |", "| --- | --- | --- | --- |", *rows))
