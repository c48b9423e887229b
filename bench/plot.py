"""The figures as bars. Runs in the peers' environment, which has matplotlib.

Takes: the JSON file of a bench and a folder. Gives: performance.png and performance.svg.
May touch: the folder.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
mpl.rcParams["svg.hashsalt"] = "stepflow"

import matplotlib.pyplot as plt  # noqa: E402

PANELS = (
    ("first_s", "time to first request, s"),
    ("step_ms", "per step, ms"),
    ("peak_mb", "peak memory of all processes, MB"),
    ("billed", "input tokens billed, 33 steps, thousands"),
)
OWN, OTHERS, FLOOR = "#1f6feb", "#b8c0cc", "#6e7781"


def main(result: Path, folder: Path) -> None:
    """Draw."""
    compared = {
        name: figures
        for name, figures in json.loads(result.read_text())["compared"].items()
        if "problem" not in figures
    }
    figure, panels = plt.subplots(2, 2, figsize=(10, 5.6))
    for (key, title), panel in zip(PANELS, panels.flat, strict=True):
        values = [figures[key]["33"] / 1000 if key == "billed" else figures[key] for figures in compared.values()]
        colors = [OWN if name == "stepflow" else FLOOR if name == "floor" else OTHERS for name in compared]
        bars = panel.barh(list(compared), values, color=colors)
        panel.bar_label(bars, [f"{value:.2f}" if key == "first_s" else f"{value:,.0f}" for value in values], padding=3)
        panel.set_title(title, fontsize=10, loc="left")
        panel.invert_yaxis()
        panel.margins(x=0.15)
        panel.spines[["top", "right", "bottom"]].set_visible(False)
        panel.set_xticks([])
        panel.tick_params(left=False)
    figure.tight_layout()
    figure.savefig(folder / "performance.png", dpi=120, metadata={"Software": None})
    figure.savefig(folder / "performance.svg", metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
