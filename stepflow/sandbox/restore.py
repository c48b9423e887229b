"""Gives back what tools were lent of a checkout: in one order, whatever ended the run.

The end of a run that was killed comes with the next one, from the journal and by the same steps.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from stepflow.errors import InputError
from stepflow.sandbox.credentials.stripped_credentials import StrippedCredentials, find_credentials
from stepflow.sandbox.ownership import Ownership
from stepflow.sandbox.tree_walk import FOLDER_FLAGS, remove_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.sandbox.identity import Identity

_SUFFIX = ".jsonl"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_ALIVE = (
    "it is not certain that every process of the tools is dead, so nothing in the checkout is touched: git's "
    "configuration, the credentials and the owners of files stay as the tools left them. Run nothing in this checkout, "
    "and check the repository out again before a later step needs it."
)
#: Seconds in which the tools of a run that was killed end by themselves.
_FAREWELL = 20.0
_PAUSE = 0.05


class RestoreJournal:
    """One journal, open and locked."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._file = os.fdopen(descriptor, "r+b")

    @classmethod
    def begin(cls, folder: Path, checkout: Path) -> Self:
        """A new journal for the checkout. Raises `InputError` when another run works there."""
        path = _path_of(folder, checkout)
        while True:
            try:
                folder.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
            except OSError as exc:
                raise InputError(
                    f"What this run must give back cannot be written down in {folder}: {exc.strerror}.",
                    hint="Let XDG_STATE_HOME name a folder that you may write to.",
                ) from exc
            # Whoever removes a journal removes an empty folder too, at any moment.
            if journal := cls._opened(path, os.O_CREAT):
                break
        if journal._file.read(1):
            journal.close()
            raise InputError(
                f"A run that was killed has left the checkout {checkout} as it was then.",
                hint="Start this run again: what that one took is given back first.",
            )
        journal.record("checkout", str(checkout))
        return journal

    @classmethod
    def left_in(cls, folder: Path, checkout: Path) -> Iterator[Self]:
        """The journals that killed runs have left. Raises `InputError` when a run works in this checkout now."""
        own = _path_of(folder, checkout)
        if not folder.parent.is_dir():
            return
        for path in sorted({own, *folder.glob(f"*{_SUFFIX}")}):
            try:
                journal = cls._opened(path)
            except InputError:
                if path == own:
                    raise
                continue
            if journal:
                yield journal

    def record(self, kind: str, facts: object) -> None:
        """Write one thing down: JSON, in which paths are texts."""
        self._file.write(json.dumps([kind, facts], default=os.fspath).encode() + b"\n")
        self._file.flush()

    def records(self) -> list[tuple[str, object]]:
        """Everything in its order. What was not written whole was not begun."""
        self._file.seek(0)
        return [tuple(json.loads(line)) for line in self._file if line.endswith(b"\n")]

    def remove(self) -> None:
        """All was given back."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        with contextlib.suppress(OSError):
            self.path.parent.rmdir()
        self.close()

    def close(self) -> None:
        """Let it go, for the next run."""
        self._file.close()

    @classmethod
    def _opened(cls, path: Path, create: int = 0) -> Self | None:
        """The journal at the path, locked; None when there is none, or when another run has just removed it. Only what
        nobody else can have written counts."""
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | create
        with contextlib.ExitStack() as opened:
            place = path.parent
            try:
                folder = os.open(place, FOLDER_FLAGS)
                opened.callback(os.close, folder)
                _demand_own(os.fstat(folder), place)
                place = path
                journal = cls(path, os.open(path.name, flags, 0o600, dir_fd=folder))
            except FileNotFoundError:
                return None
            except OSError as exc:
                raise _untrusted(place) from exc
            failed = opened.enter_context(contextlib.ExitStack())
            failed.callback(journal.close)
            info = os.fstat(journal._file.fileno())
            _demand_own(info, path)
            try:
                fcntl.flock(journal._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    "Another run of stepflow works in this checkout.",
                    hint="Wait until it has ended, or use another checkout.",
                ) from None
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(info, os.stat(path.name, dir_fd=folder, follow_symlinks=False)):
                    failed.pop_all()
                    return journal
            return None


def _path_of(folder: Path, checkout: Path) -> Path:
    return folder / f"{hashlib.sha256(os.fsencode(checkout.resolve())).hexdigest()[:32]}{_SUFFIX}"


def _demand_own(info: os.stat_result, path: Path) -> None:
    if info.st_uid != os.geteuid() or info.st_mode & _OTHERS:
        raise _untrusted(path)


def _untrusted(path: Path) -> InputError:
    return InputError(
        f"{path} is not stepflow's own: others may write it.", hint="Remove it, and see who has put it there."
    )


@contextlib.contextmanager
def credentials_stripped(
    checkout: Path,
    runner_temp: Path | None = None,
    login_files: tuple[Path, ...] = (),
    *,
    journals: Path | None = None,
) -> Iterator[CheckoutRestore]:
    """No file below the checkout holds its credentials until the block ends; then git's configuration is as it was.

    Nothing of the tools may be alive at the end, and no signal may raise on the way in or out; a toolbox that is
    started with what this yields sees to the former. `runner_temp` None: files outside the checkout stay as they are.
    `login_files`: what steps before left in the checkout to log in by. `journals` is where it is written down for a
    next run; None: a run that is killed gives nothing back.
    """
    restore = CheckoutRestore(checkout, RestoreJournal.begin(journals, checkout) if journals else None)
    try:
        restore.take_credentials(runner_temp, login_files)
        yield restore
    finally:
        restore.give_back(all_dead=True)


def mend_checkouts(journals: Path, checkout: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Give back what runs that were killed have taken. Each checkout in a sentence, with what did not come back.

    Raises `InputError` when a run works in this checkout now, or when what was taken from it cannot be read. Another
    checkout that cannot be given back is left to a run in it.
    """
    own = _path_of(journals, checkout)
    for journal in RestoreJournal.left_in(journals, checkout):
        records = journal.records()
        named = next((str(facts) for kind, facts in records if kind == "checkout"), "")
        if not named:
            journal.remove()
            continue
        restore = CheckoutRestore(Path(named), journal)
        try:
            restore.recall(records)
        except (InputError, KeyError, TypeError, ValueError) as exc:
            journal.close()
            if journal.path != own:
                continue
            if isinstance(exc, InputError):
                raise
            raise InputError(
                f"Another version of stepflow wrote down what a run that was killed took: {journal.path}.",
                hint="Check the repository out again and remove this file.",
            ) from exc
        restore.give_back(all_dead=True)
        yield f"A run that was killed had left {named} as it was then; what it took is given back.", restore.notes


class CheckoutRestore:
    """What a run has changed about a checkout that is not its work. `notes` are warnings, known when it is back."""

    def __init__(self, checkout: Path, journal: RestoreJournal | None = None) -> None:
        self.notes: tuple[str, ...] = ()
        self.state = "not looked for"
        self._checkout = checkout
        self._journal = journal
        self._stripped: StrippedCredentials | None = None
        self._ownership: Ownership | None = None
        self._made: list[Path] = []

    def take_credentials(self, runner_temp: Path | None, login_files: tuple[Path, ...] = ()) -> None:
        """Take the credentials away and remember git's own files."""
        survey = find_credentials(self._checkout, runner_temp, login_files)
        stripped = StrippedCredentials.find(survey)
        if self._journal:
            self._journal.record("credentials", stripped.record())
        self.state, self._stripped = survey.state, stripped
        stripped.take()

    def hand_over_to(self, identity: Identity) -> None:
        """Let the checkout belong to the tools' user, if it was root's; remember owners and modes."""
        ownership = Ownership(self._checkout, identity)
        if self._journal:
            self._journal.record("ownership", ownership.record())
        self._ownership = ownership
        ownership.hand_over()

    def expect(self, path: Path) -> None:
        """Something will be made there that must not outlast the run. Whoever makes it removes it."""
        if self._journal:
            self._journal.record("made", str(path))

    def remove_at_end(self, path: Path) -> None:
        """Something will be made there that is removed last, for it may take long."""
        self.expect(path)
        self._made.append(path)

    def expect_end_of(self, program: int) -> None:
        """Nothing may be given back before this process has ended, which first ends all that it has started."""
        if self._journal:
            self._journal.record("program", [program, _start_of(program)])

    def recall(self, records: list[tuple[str, Any]]) -> None:
        """Take over what a run that was killed has written down."""
        for kind, facts in records:
            match kind:
                case "credentials":
                    self._stripped = StrippedCredentials.of_record(self._checkout, facts)
                case "ownership" if self._checkout.is_dir():
                    self._ownership = Ownership.of_record(self._checkout, facts)
                case "made":
                    self._made.append(Path(facts))
                case "program":
                    _demand_ended(*cast("tuple[int, str]", facts))
                case _:
                    pass

    def give_back(self, *, all_dead: bool) -> None:
        """Give everything back, what a later step could be harmed by first; once. Unless it is certain that nothing of
        the tools is alive, nothing is touched: a link that is swapped in would lead us elsewhere."""
        stripped, self._stripped = self._stripped, None
        ownership, self._ownership = self._ownership, None
        journal, self._journal = self._journal, None
        with contextlib.ExitStack() as held:
            if journal:
                held.callback(journal.close)
            if stripped:
                held.callback(stripped.close)
            if not all_dead:
                self.notes += (_ALIVE,)
                return
            self._give_back(stripped, ownership)
            if journal:
                journal.remove()

    def _give_back(self, stripped: StrippedCredentials | None, ownership: Ownership | None) -> None:
        with contextlib.ExitStack() as last:
            for path in self._made:
                last.callback(remove_path, path)
            if stripped:
                last.callback(stripped.remove_aside)
            if ownership:
                last.callback(ownership.take_back)
            if stripped:
                self.notes += stripped.give_back()


def _demand_ended(program: int, start: str) -> None:
    deadline = time.monotonic() + _FAREWELL
    while start and _start_of(program) == start:
        if time.monotonic() > deadline:
            raise InputError(
                "The tools of a run that was killed are still alive in this checkout.",
                hint=f"End the process {program} and all that it has started, then start this run again.",
            )
        time.sleep(_PAUSE)


def _start_of(program: int) -> str:
    """What tells the process apart from a later one of its number; empty when it has ended."""
    try:
        fields = Path(f"/proc/{program}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
