"""A secret is found in a git pack wherever it stands, and a pack that hides its contents is not believed."""

from __future__ import annotations

import io
import subprocess
import tracemalloc
from pathlib import Path

import pytest

from stepflow.domain.secrets import UnsearchablePack, pack_holds_secret, secrets_to_find
from tests.checkout import git

SECRET = "ghs_secretofatest0123456789"
SOUGHT = secrets_to_find([SECRET, "short"])


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git("init", "--quiet", cwd=tmp_path)
    return tmp_path


def pack(repository: Path, *options: str) -> bytes:
    """Everything in the repository, packed by git."""
    git("add", "--all", cwd=repository)
    git("commit", "--quiet", "--allow-empty", "--message", "Commit", cwd=repository)
    words = ["git", "pack-objects", "--all", "--stdout", "-q", *options]
    return subprocess.run(words, cwd=repository, check=True, capture_output=True, stdin=subprocess.DEVNULL).stdout


@pytest.mark.parametrize("before", [0, 1024 * 1024 - 13, 3 * 1024 * 1024 + 1])
def test_a_secret_is_found_wherever_it_stands_in_a_file(repository: Path, before: int) -> None:
    (repository / "a").write_text("x" * before + SECRET + "y" * 2_000_000)
    assert pack_holds_secret(io.BytesIO(pack(repository, "--depth=0")), SOUGHT)


def test_a_tags_name_and_message_are_looked_at(repository: Path) -> None:
    pack(repository)
    git("tag", "--annotate", "--message", f"Of {SECRET}", "v1", cwd=repository)
    assert pack_holds_secret(io.BytesIO(pack(repository, "--depth=0")), SOUGHT)


def test_other_packs_hold_none_and_too_short_a_secret_is_none(repository: Path) -> None:
    (repository / "a").write_text("short\n" * 1_000_000)
    (repository / "empty").touch()
    assert not pack_holds_secret(io.BytesIO(pack(repository, "--depth=0") + b"what follows"), SOUGHT)


@pytest.mark.whole
@pytest.mark.parametrize("sought", [SOUGHT, secrets_to_find([])])
def test_a_search_holds_no_more_of_a_file_than_a_few_pieces(repository: Path, sought: frozenset[bytes]) -> None:
    """Also of a run that has no secret at all."""
    (repository / "a").write_bytes(bytes(48 * 1024 * 1024))
    file = io.BytesIO(pack(repository, "--depth=0"))
    tracemalloc.start()
    try:
        assert not pack_holds_secret(file, sought)
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_what_cannot_be_looked_at_is_said_to_be_so(repository: Path) -> None:
    lines = [str(number) for number in range(20_000)]
    for word in ("one", "two"):
        (repository / "a").write_text("\n".join([*lines, word]))
        git("add", "--all", cwd=repository)
        git("commit", "--quiet", "--message", word, cwd=repository)
    with pytest.raises(UnsearchablePack, match="differs from another"):
        pack_holds_secret(io.BytesIO(pack(repository)), SOUGHT)
    whole = pack(repository, "--depth=0")
    for damaged in (b"", b"PACK", b"no pack at all", whole[:-1000], whole[:100] + b"\0\0\0" + whole[103:]):
        with pytest.raises(UnsearchablePack):
            pack_holds_secret(io.BytesIO(damaged), SOUGHT)
