"""Runs git's plumbing for a snapshot, inside a worker: with input, bytes as output, and past hooks and monitors.

Takes: arguments and input. Gives: what git printed, as bytes.
May touch: git in the checkout, as the tools' user.
"""

from __future__ import annotations

import resource
import subprocess
from typing import TYPE_CHECKING

from .paths import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .family import Family

_TIMEOUT = 120.0
_PIECE = 65536
#: Replaced objects and grafts show another history than the one that is there; taking a lock would be a change.
_PLAIN = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": "/dev/null", "GIT_OPTIONAL_LOCKS": "0"}
#: Nothing that the checkout configures is started, and nothing is remembered in a corner of the repository.
_QUIET = (
    *("-c", "advice.graftFileDeprecated=false", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"),
    *("-c", "core.untrackedCache=false", "-c", "pack.threads=1", "-c", "pack.writeReverseIndex=false"),
    *("-c", "core.logAllRefUpdates=false"),
)


class Git:
    """git in the checkout."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def ask(self, *arguments: str, given: bytes = b"", fine: tuple[int, ...] = (0,)) -> bytes:
        """What git prints. Raises `Refusal` for an exit code that is not among the fine ones."""
        with self._start(arguments) as child:
            try:
                said, complaint = child.communicate(given, _TIMEOUT)
            except subprocess.TimeoutExpired:
                child.kill()
                raise Refusal(f"git {arguments[0]} took longer than {_TIMEOUT:g} s") from None
        if child.returncode not in fine:
            told = complaint.decode("utf-8", "replace").strip()[-500:] or f"exit code {child.returncode}"
            raise Refusal(f"git {arguments[0]} failed: {told}")
        return said

    def stream(self, *arguments: str, given: bytes, limit: int, feed: Callable[[bytes], object]) -> None:
        """Hand on what git prints. Raises `Refusal`, also for more than `limit` bytes. `given` must be short."""
        total = 0
        with self._start(arguments) as child:
            assert child.stdin  # noqa: S101 - asked for
            assert child.stdout  # noqa: S101
            child.stdin.write(given)
            child.stdin.close()
            while piece := child.stdout.read(_PIECE):
                total += len(piece)
                if total > limit:
                    child.kill()
                    raise Refusal(f"git {arguments[0]} gives more than {limit} bytes")
                feed(piece)
        if child.returncode != 0:
            raise Refusal(f"git {arguments[0]} failed with exit code {child.returncode}")

    def contents(self, objects: Iterable[str]) -> Iterator[bytes]:
        """The content of one object after the other, by one git. Raises `Refusal` for one that is not there."""
        with self._start(("cat-file", "--batch")) as child:
            assert child.stdin  # noqa: S101 - asked for
            assert child.stdout  # noqa: S101
            for name in objects:
                child.stdin.write(f"{name}\n".encode())
                child.stdin.flush()
                facts = child.stdout.readline().split()
                if len(facts) != 3:
                    child.kill()
                    raise Refusal(f"the repository lacks the object {name[:12]}")
                yield child.stdout.read(int(facts[2]))
                child.stdout.read(1)
            child.stdin.close()

    def _start(self, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
        """A worker's bound on memory is not git's, which maps whole packs."""
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        try:
            return self._family.start(
                ("git", *_QUIET, *arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                extra_env=_PLAIN,
            )
        except OSError as exc:
            raise Refusal(f"git could not be started: {exc.strerror}") from exc
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
