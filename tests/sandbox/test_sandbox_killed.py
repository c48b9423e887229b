"""A journal of what a run has taken: a second run in the same checkout is refused, and what others write is none."""

from __future__ import annotations

import pytest


def test_a_second_run_in_the_same_checkout_is_refused(checkout, open_folder):
    from stepflow.errors import InputError
    from stepflow.sandbox.restore import credentials_away, mend_checkouts

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
    from stepflow.sandbox.restore import credentials_away

    journals = open_folder / "journals"
    if plant == "a link":
        (open_folder / "elsewhere").mkdir(mode=0o700)
        journals.symlink_to("elsewhere")
    else:
        journals.mkdir()
        journals.chmod(0o777)
    with pytest.raises(InputError, match="not stepflow's own"), credentials_away(checkout, journals=journals):
        pass
