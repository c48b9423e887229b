"""A secret that the agent commits is neither pushed nor kept, also when a later commit takes it back."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest

from tests.servers.messages_api import Reply
from tests.world import COMMIT, MODEL_KEY, TOKEN, World, answer, bash, solve, understood

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("unchecked_base")]

WORK_ON = answer("continuation.issue", "repeat", summary="still at it")
AS_MODEL = "git -c user.name=Model -c user.email=model@example.invalid"
#: Every place in a commit where a secret can stand. The tree of the last commit holds none of them.
COMMITTED = {
    "a file": f"echo '{MODEL_KEY}' > .npmrc && git add .npmrc && {AS_MODEL} commit -qm Key && git rm -q .npmrc",
    "a large file that was changed": (
        f"seq 99999 > big && git add big && {AS_MODEL} commit -qm Big && git gc -q && sed -i '50000s/.*/{TOKEN}/' big"
        f" && git add big && {AS_MODEL} commit -qm Change && git gc -q && git rm -qf big"
    ),
    "a commit's message": f"{AS_MODEL} commit -q --allow-empty -m 'Use {TOKEN}'",
    "an author's name": f"git -c user.name='{TOKEN}' -c user.email=m@x commit -q --allow-empty -m Name",
    "a path": f"touch 'x{TOKEN}' && git add . && {AS_MODEL} commit -qm Path && git rm -q 'x{TOKEN}'",
    "a side branch that is merged": (
        f"git checkout -qb side && echo {TOKEN} > t && git add t && {AS_MODEL} commit -qm T && git rm -q t &&"
        f" {AS_MODEL} commit -qm 'No T' && git checkout -q - && {AS_MODEL} merge -q --no-ff -m Merge side"
    ),
}


def greet(command: str) -> list[Reply]:
    """A run that would end with a pull request, and insists on it."""
    _, _, *rest = solve()
    return [understood(), bash(f"{command} && echo 'hello, world' > greeting.txt && {COMMIT}"), *rest * 3]


def unpacked(folder: Path) -> bytes:
    """Everything in a folder: the names, the bytes as they are, and whatever in them is compressed."""
    parts: list[bytes] = []
    for path in folder.rglob("*"):
        parts.append(bytes(path))
        data = path.read_bytes() if path.is_file() else b""
        parts.append(data)
        for start in re.finditer(rb"\x78[\x01\x5e\x9c\xda]", data):
            try:
                parts.append(zlib.decompressobj().decompress(data[start.start() :]))
            except zlib.error:
                continue
    return b"\n".join(parts)


@pytest.mark.parametrize("command", COMMITTED.values(), ids=COMMITTED)
def test_a_secret_in_any_commit_is_neither_pushed_nor_kept(world: World, command: str) -> None:
    done = world.run(greet(command))
    assert done.outputs["outcome"] == "refused", done.log
    assert "a secret of this run" in done.outputs["reason"]
    assert world.wrote_nothing(but_comments=1)
    (comment,) = world.comments()
    assert "A commit contains a secret of this run" in comment
    assert (TOKEN in comment, MODEL_KEY in comment) == (False, False)
    content = unpacked(done.folder)
    assert (TOKEN.encode() in content, MODEL_KEY.encode() in content) == (False, False)
    assert "no snapshot of it is kept" in done.log


def test_a_failed_run_pushes_no_secret_with_its_unfinished_work(world: World) -> None:
    leaked = f"echo {TOKEN} > t && git add t && {AS_MODEL} commit -qm T && git rm -q t && {AS_MODEL} commit -qm 'No T'"
    done = world.run([understood(), bash(leaked), WORK_ON], max_iterations="2")
    assert done.outputs["outcome"] == "limit_reached"
    assert world.branches().keys() == {"main"}
    assert "a secret of this run" in done.log
    assert TOKEN.encode() not in unpacked(done.folder)


def test_a_secret_that_is_staged_only_is_not_kept(world: World) -> None:
    staged = f"echo {TOKEN} > t && git add t && rm t"
    done = world.run([understood(), bash(staged), WORK_ON], max_iterations="2", on_failure="nothing")
    assert TOKEN.encode() not in unpacked(done.folder)
    assert "no snapshot of it is kept" in done.log


def test_commits_without_a_secret_are_pushed_as_before(world: World) -> None:
    packed = f"seq 9999 > n && git add n && {AS_MODEL} commit -qm N && git gc -q && sed -i 5d n"
    done = world.run(greet(packed))
    assert done.outputs["outcome"] == "completed", done.log
    assert "[Snapshot] not kept" not in done.log
