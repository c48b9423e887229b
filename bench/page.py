"""docs/performance.md: the figures as tables.

Takes: the figures of one bench. Gives: Markdown.
May touch: nothing.
"""

from __future__ import annotations

import re
from typing import Any

from bench.runners import RUNNERS

BEGIN, END = "<!-- made by `make bench` -->", "<!-- end of what `make bench` made -->"
_PEERS = ("pydantic-ai", "langgraph", "claude-agent-sdk")

Figures = dict[str, Any]


def put_in(page: str, result: Figures) -> str:
    """The page with the newest tables; what people wrote around them stays."""
    whole = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    if not whole.search(page):
        raise ValueError(f"docs/performance.md lacks the line {BEGIN} or {END}")
    return whole.sub(lambda _: f"{BEGIN}\n\n{tables(result)}\n\n{END}", page)


def tables(result: Figures) -> str:
    """All of them."""
    parts = [
        _facts(result),
        _comparison(result),
        _PICTURE,
        _targets(result),
        _alone(result["alone"]),
    ]
    return "\n\n".join(part for part in parts if part)


_PICTURE = "![The same figures as bars: stepflow, the floor and the peers](performance.svg)"


def _facts(result: Figures) -> str:
    machine, versions = result["machine"], result["versions"]
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f"Measured on {result['date']} with `{result['command']}`: medians of {result['runs']} runs of each, in turn, "
        f"on {machine['cores']} cores of {machine['processor']}, {machine['memory_gb']} GB, Linux {machine['kernel']}. "
        f"Versions: {listed}."
    )


def _comparison(result: Figures) -> str:
    head = (
        "| | first request, s | per step, ms | peak memory, MB | requests, 3 / 33 steps | input tokens billed, 3 / 33 "
        "| sent, kB, 3 / 33 steps |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    )
    return "\n".join((head, *(_row(runner.title, result["compared"][runner.name]) for runner in RUNNERS)))


def _row(title: str, figures: Figures) -> str:
    if problem := figures.get("problem"):
        return f"| {title} | could not be run: {_cell(problem)} | | | | | |"
    asked, billed, sent = (figures[name].values() for name in ("requests", "billed", "bytes"))
    cells = (
        f"{figures['first_s']:.2f}",
        f"{figures['step_ms']:.0f}",
        f"{figures['peak_mb']:.0f}",
        " / ".join(str(count) for count in asked),
        " / ".join(f"{count:,}" for count in billed),
        " / ".join(f"{count / 1000:,.0f}" for count in sent),
    )
    return f"| {title} | {' | '.join(cells)} |"


def _targets(result: Figures) -> str:
    rows = [
        f"| {name} | {target} | {value} | {'met' if met else '**not met**'} |"
        for name, target, value, met in judged(result)
    ]
    return "\n".join(("| figure | target | this run | |", "| --- | --- | --- | --- |", *rows))


def judged(result: Figures) -> list[tuple[str, str, str, bool]]:
    """Each target that could be measured: name, target, value, whether it is met."""
    compared, alone = result["compared"], result["alone"]
    if "problem" in compared["stepflow"] or "problem" in compared["floor"]:
        return []
    found: list[tuple[str, str, str, bool]] = []

    def ratio(name: str, other: str, most: float, *path: str) -> None:
        if "problem" in compared[other]:
            return
        own, theirs = compared["stepflow"], compared[other]
        for key in path:
            own, theirs = own[key], theirs[key]
        value = own / theirs
        found.append((name, f"≤ {most:g} × {other}", f"{value:.2f} ×", value <= most))

    def below_peers(name: str, key: str, most: float) -> None:
        peers = {peer: compared[peer][key] for peer in _PEERS if "problem" not in compared[peer]}
        if peers:
            best = min(peers, key=lambda peer: peers[peer])
            value = compared["stepflow"][key] / peers[best]
            sign = "<" if most == 1 else "≤"
            found.append((name, f"{sign} {most:g} × the best peer ({best})", f"{value:.2f} ×", value <= most))

    ratio("time to first request", "floor", 1.2, "first_s")
    below_peers("time to first request", "first_s", 1)
    ratio("per step, sandbox on", "floor", 2.0, "step_ms")
    below_peers("per step, sandbox on", "step_ms", 0.75)
    ratio("peak memory, whole tree", "floor", 1.5, "peak_mb")
    below_peers("peak memory, whole tree", "peak_mb", 1)
    ratio("input tokens billed, 33 steps", "floor", 1.25, "billed", "33")
    ratio("input tokens billed, 33 steps", "claude-agent-sdk", 0.15, "billed", "33")
    return found + _judged_alone(alone)


def _judged_alone(alone: Figures) -> list[tuple[str, str, str, bool]]:
    found = []
    long = alone.get("long_run")
    if isinstance(long, dict):
        for what in ("time", "memory"):
            value = long[f"{what}_ratio"]
            found.append(
                (f"10,000 iterations, {what}", "last thousand ≤ 1.05 × first", f"{value:.3f} ×", value <= 1.05)
            )
    validate = alone.get("validate_s")
    if isinstance(validate, dict):
        small, middle, large = (validate[size] for size in ("10", "200", "2000"))
        found.append(("`validate` of a small agent", "≤ 0.6 s", f"{small:.2f} s", small <= 0.6))
        found.append(("`validate`, 2,000 steps", "≤ 1.5 s", f"{large:.2f} s", large <= 1.5))
        growth = (large - small) / (middle - small) if middle > small else 0.0
        # From 10 to 2,000 steps are 1990, to 200 are 190; a tenth more is what clocks are worth.
        growing = growth <= 1990 / 190 * 1.1
        found.append(
            ("`validate`, growth", "linear at most: ≤ 10.5 × from 200 to 2,000 steps", f"{growth:.1f} ×", growing)
        )
    if isinstance(alone.get("help_s"), float):
        found.append(("`stepflow --help`", "≤ 0.25 s", f"{alone['help_s']:.2f} s", alone["help_s"] <= 0.25))
    image = alone.get("image")
    if isinstance(image, dict):
        found.append(("image, unpacked", "≤ 450 MB", f"{image['mb']} MB", image["mb"] <= 450))
    return found


def _alone(alone: Figures) -> str:
    rows = ["| stepflow alone | |", "| --- | --- |"]
    for name, key in (
        ("`--help`", "help_s"),
        ("`validate`", "validate_s"),
        ("sandboxed tool call (`true`)", "tool_call_ms"),
    ):
        rows.append(f"| {name} | {_told(key, alone.get(key))} |")
    long = alone.get("long_run")
    if isinstance(long, dict):
        rows += [
            f"| an iteration of {long['iterations']:,}, scripted model | "
            f"{long['first_ms']:.1f} ms in the first thousand, {long['last_ms']:.1f} ms in the last |",
            f"| journal | {long['journal_bytes']:,} bytes an iteration |",
            f"| report.html of {long['iterations']:,} iterations | "
            f"{long['page_s']:.1f} s, {long['page_bytes'] / 1e6:.1f} MB |",
        ]
    else:
        rows.append(f"| 10,000 iterations | {_cell(long)} |")
    image = alone.get("image")
    if isinstance(image, dict):
        first = image["first_request_s"]
        layers = "[each layer](how-to/images.md#what-each-layer-is-for)"
        rows.append(f"| image | {image['mb']} MB, {image['packed_mb']} MB compressed; {layers} |")
        rows.append(
            f"| container start to first request | {f'{first:.2f} s' if isinstance(first, float) else _cell(first)} |"
        )
    else:
        rows.append(f"| image | {_cell(image)} |")
    return "\n".join(rows)


def _told(key: str, value: Any) -> str:
    match key, value:
        case "help_s", float():
            return f"{value:.2f} s"
        case "validate_s", dict():
            return ", ".join(f"{int(size):,} steps: {seconds:.2f} s" for size, seconds in value.items())
        case "tool_call_ms", dict():
            return f"{value['with']:.1f} ms; {value['without']:.1f} ms without any layer"
        case _:
            return _cell(value)


def _cell(text: object) -> str:
    return " ".join(str(text).replace("|", "/").replace("`", "'").split())
