"""What came, accepted as what is expected from now on (`stepflow rehearse --update`).

Takes: a played scenario. Gives: what is told of it.
May touch: the scenario's file in the checkout.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.errors import InputError
from stepflow.model.scenario_update import update_expect
from stepflow.run.expected import NOT_PLAYED

if TYPE_CHECKING:
    from pathlib import Path

    from stepflow.domain.rehearsal import Rehearsed
    from stepflow.run.play import Played


def accept(played: Played, root: Path) -> Rehearsed:
    """Write it into the file, where it differs or where nothing was expected yet."""
    rehearsed, expect = played.rehearsed, played.expect
    if expect is not None and not rehearsed.differences:
        return rehearsed
    if rehearsed.outcome in NOT_PLAYED and not (expect and expect.outcome is rehearsed.outcome):
        said = f"a run that ends {rehearsed.outcome} was not played through; mend the scenario or the agent first"
        return replace(rehearsed, refusal=said)
    file = root / rehearsed.file
    try:
        # Not `read_text`: the line ends of the file must stay.
        text = file.read_bytes().decode("utf-8")
        file.write_bytes(update_expect(text, played.came, name=rehearsed.file).encode("utf-8"))
    except InputError as error:
        return replace(rehearsed, refusal=str(error))
    except OSError as error:
        return replace(rehearsed, refusal=f"{file} cannot be written: {error.strerror}")
    return replace(rehearsed, updated=True)
