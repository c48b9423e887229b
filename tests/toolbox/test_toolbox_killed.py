"""A run that is killed at any step of its start or end leaves nothing behind once the next one has begun and ended."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from credentials_world import append, persist_as_v5, persist_as_v6, snapshot
from killed_sandbox import Nursery
from toolbox_world import AS_ROOT, reachable_folder

#: Moments of one run; all of them with STEPFLOW_KILLS=0.
FEW, MANY = 3, int(os.environ.get("STEPFLOW_KILLS", "60"))
OWNERS = ((0, 0), (1001, 118)) if AS_ROOT else ((os.getuid(), os.getgid()),)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


def lay_out(place: Path, template: Path, owner: tuple[int, int]) -> None:
    """A runner's folders and a checkout with credentials in both forms."""
    for name in ("temp/commands", "home", "run", "tmp"):
        (place / name).mkdir(parents=True)
    (place / "temp/commands/output").write_text("")
    checkout = Path(shutil.copytree(template, place / "checkout", symlinks=True))
    persist_as_v5(checkout)
    persist_as_v6(checkout, place / "temp")
    append(checkout, "; the end\n")
    (checkout / "gone").symlink_to("nowhere")
    if AS_ROOT:
        for path in (checkout, *checkout.rglob("*")):
            os.chown(path, *owner, follow_symlinks=False)
        (checkout / "hello.txt").chmod(0o640)
        os.chown(checkout / "hello.txt", owner[0], 4711)


def differences(before: dict[str, object], after: dict[str, object]) -> dict[str, object]:
    """What is no longer what it was."""
    return {
        path: (before.get(path), after.get(path))
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path)
    }


def try_moments(nursery: Nursery, template: Path, owner: tuple[int, int], moments: int) -> int:
    """Kill at so many moments, spread over the whole run; how many there were."""
    with reachable_folder() as place:
        lay_out(place, template, owner)
        before = snapshot(place)
        total = int(nursery.run(place))
        assert differences(before, snapshot(place)) == {}
        step = max(total // moments, 1) if moments else 1
        for moment in range(1, total + 1, step):
            assert nursery.run(place, die_before=moment) == "killed", moment
            assert nursery.run(place).isdigit(), moment
            assert differences(before, snapshot(place)) == {}, moment
        return total // step


@pytest.mark.parametrize("owner", OWNERS)
def test_killed_at_a_few_moments(nursery, template, owner):
    assert try_moments(nursery, template, owner, FEW) >= FEW


@pytest.mark.whole
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("owner", OWNERS)
def test_killed_at_many_moments(nursery, template, owner):
    try_moments(nursery, template, owner, MANY)


def test_a_second_run_in_the_same_checkout_is_refused(checkout, open_folder):
    from stepflow.errors import InputError
    from stepflow.toolbox.restore import credentials_away, mend_checkouts

    journals = open_folder / "journals"
    with credentials_away(checkout, journals=journals):
        (journal,) = journals.iterdir()
        assert (journal.stat().st_mode & 0o777, journals.stat().st_mode & 0o777) == (0o600, 0o700)
        with pytest.raises(InputError, match="Another run"):
            list(mend_checkouts(journals, checkout))
        with pytest.raises(InputError, match="Another run"), credentials_away(checkout, journals=journals):
            pass
    assert not journals.exists()


@pytest.mark.parametrize("plant", ["a link", "a folder of others"])
def test_what_others_may_have_written_is_no_journal(checkout, open_folder, plant):
    from stepflow.errors import InputError
    from stepflow.toolbox.restore import credentials_away

    journals = open_folder / "journals"
    if plant == "a link":
        (open_folder / "elsewhere").mkdir(mode=0o700)
        journals.symlink_to("elsewhere")
    else:
        journals.mkdir()
        journals.chmod(0o777)
    with pytest.raises(InputError, match="not stepflow's own"), credentials_away(checkout, journals=journals):
        pass
