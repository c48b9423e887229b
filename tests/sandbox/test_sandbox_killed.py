"""A journal of what a run has taken: a second run in the same checkout is refused, and what others write is none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from credentials_world import HEADER, PAYLOAD, files_holding, persist_as_v5, persist_as_v6, snapshot


def test_a_second_run_in_the_same_checkout_is_refused(checkout, open_folder):
    from stepflow.errors import InputError
    from stepflow.sandbox.restore import credentials_stripped, mend_checkouts

    journals = open_folder / "journals"
    with credentials_stripped(checkout, journals=journals):
        (journal,) = journals.iterdir()
        assert (journal.stat().st_mode & 0o777, journals.stat().st_mode & 0o777) == (0o600, 0o700)
        with pytest.raises(InputError, match="Another run"):
            list(mend_checkouts(journals, checkout))
        with pytest.raises(InputError, match="Another run"), credentials_stripped(checkout, journals=journals):
            pass
    assert not journals.exists()


@pytest.mark.parametrize("plant", ["a link", "a folder of others"])
def test_what_others_may_have_written_is_no_journal(checkout, open_folder, plant):
    from stepflow.errors import InputError
    from stepflow.sandbox.restore import credentials_stripped

    journals = open_folder / "journals"
    if plant == "a link":
        (open_folder / "elsewhere").mkdir(mode=0o700)
        journals.symlink_to("elsewhere")
    else:
        journals.mkdir()
        journals.chmod(0o777)
    with pytest.raises(InputError, match="not stepflow's own"), credentials_stripped(checkout, journals=journals):
        pass


TAKES_AND_DIES = """
import os, sys
from pathlib import Path
from stepflow.sandbox.restore import credentials_stripped

checkout, temp, journals = map(Path, sys.argv[1:])
with credentials_stripped(checkout, temp, journals=journals):
    os._exit(9)
"""


def test_what_a_killed_run_took_is_given_back_by_the_next(checkout, open_folder):
    from stepflow.sandbox.restore import mend_checkouts

    temp, journals = open_folder / "temp", open_folder / "journals"
    temp.mkdir()
    persist_as_v5(checkout)
    outside = persist_as_v6(checkout, temp)
    hooks = checkout / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / os.fsdecode(b"pre-\xff")).write_bytes(b"#!/bin/sh\n\xff")
    (hooks / "post-commit").symlink_to("elsewhere")
    (hooks / "lib").mkdir(mode=0o750)
    (hooks / "lib/tool").write_text("exit 0\n")
    (checkout / "nested").mkdir()
    (checkout / "nested/.git").write_text("gitdir: ../.git\n")
    (checkout / ".git/objects/info").mkdir(exist_ok=True)
    before = snapshot(checkout, temp)
    words = (checkout, temp, journals)
    assert subprocess.run([sys.executable, "-c", TAKES_AND_DIES, *words], check=False).returncode == 9
    assert not files_holding(PAYLOAD, checkout, temp)
    assert snapshot(checkout, temp) != before
    (hooks / "pre-push").write_text("#!/bin/sh\ntouch /tmp/owned\n")
    (hooks / "lib/tool").write_text("touch /tmp/owned\n")
    (checkout / ".git/objects/info/alternates").write_text("/elsewhere\n")
    (checkout / "nested/.git").write_text("gitdir: /elsewhere\n")
    ((sentence, notes),) = mend_checkouts(journals, checkout)
    assert "is given back" in sentence
    assert notes == ()
    assert HEADER in outside.read_text()
    assert snapshot(checkout, temp) == before
    assert not journals.exists()


def test_what_another_version_wrote_stops_runs_in_its_own_checkout_alone(checkout, open_folder):
    from stepflow.errors import InputError
    from stepflow.sandbox.restore import RestoreJournal, mend_checkouts

    journals, other = open_folder / "journals", open_folder / "other"
    for folder in (checkout, other):
        journal = RestoreJournal.begin(journals, folder)
        journal.record("credentials", {"fate": "of another form"})
        journal.close()
    with pytest.raises(InputError, match="Another version") as raised:
        list(mend_checkouts(journals, checkout))
    path = next(path for path in journals.iterdir() if str(path) in str(raised.value))
    path.unlink()
    assert list(mend_checkouts(journals, checkout)) == []
    assert len(list(journals.iterdir())) == 1
