"""What tools are lent of a checkout, and its return: in one order, whatever ended the run."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from stepflow.toolbox.credentials import Away
from stepflow.toolbox.lending import Loan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stepflow.toolbox.identity import Identity

_ALIVE = (
    "it is not certain that every process of the tools is dead, so nothing in the checkout is touched: git's "
    "configuration, the credentials and the owners of files stay as the tools left them. Run nothing in this checkout, "
    "and check the repository out anew before a later step needs it."
)


@contextlib.contextmanager
def credentials_away(
    checkout: Path, runner_temp: Path | None = None, login_files: tuple[Path, ...] = ()
) -> Iterator[CheckoutRestore]:
    """No file below the checkout holds its credentials until the block ends; then git's configuration is as it was.

    Nothing of the tools may be alive at the end, and no signal may raise on the way in or out; a toolbox that is
    started with what this yields sees to the former. `runner_temp` None: files outside the checkout stay as they are.
    `login_files`: what steps before left in the checkout to log in by.
    """
    restore = CheckoutRestore(checkout)
    try:
        restore.take_credentials(runner_temp, login_files)
        yield restore
    finally:
        restore.give_back(all_dead=True)


class CheckoutRestore:
    """What a run has changed about a checkout that is not its work. `notes` are warnings, known when it is back."""

    def __init__(self, checkout: Path) -> None:
        self.notes: tuple[str, ...] = ()
        self.state = "not looked for"
        self._checkout = checkout
        self._away: Away | None = None
        self._loan: Loan | None = None

    def take_credentials(self, runner_temp: Path | None, login_files: tuple[Path, ...] = ()) -> None:
        """Take the credentials away and remember git's own files."""
        away = Away(self._checkout)
        away.find(runner_temp, login_files)
        self.state, self._away = away.state, away
        away.take()

    def lend_to(self, identity: Identity) -> None:
        """Let the checkout belong to the tools' user, if it was root's; remember owners and modes."""
        self._loan = Loan(self._checkout, identity)
        self._loan.begin()

    def give_back(self, *, all_dead: bool) -> None:
        """Give everything back, what a later step could be harmed by first; once. Unless it is certain that nothing of
        the tools is alive, nothing is touched: a link that is swapped in would lead us elsewhere."""
        away, self._away = self._away, None
        loan, self._loan = self._loan, None
        if not all_dead:
            if away:
                away.close()
            self.notes += (_ALIVE,)
            return
        with contextlib.ExitStack() as ending:
            if away:
                ending.callback(away.remove_aside)
            if loan:
                ending.callback(loan.take_back)
            if away:
                self.notes += away.give_back()
