"""The released action.yml differs from the repository's in its image and in nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from release.pin_image import pin_image
from release.refusal import Refused

ACTION = Path(__file__).parents[2] / "action.yml"
IMAGE = "ghcr.io/org/stepflow-action"
DIGEST = f"sha256:{'0123456789abcdef' * 4}"


def test_only_the_image_changes_every_other_byte_stays() -> None:
    before = ACTION.read_bytes()
    after = pin_image(before, IMAGE, DIGEST)
    assert after == before.replace(b"image: Dockerfile", f"image: docker://{IMAGE}@{DIGEST}".encode())
    was, now = yaml.safe_load(before), yaml.safe_load(after)
    assert now["runs"] == {"using": "docker", "image": f"docker://{IMAGE}@{DIGEST}"}
    assert now | {"runs": None} == was | {"runs": None}


def test_doing_it_twice_is_doing_it_once_and_a_later_digest_replaces_an_earlier_one() -> None:
    once = pin_image(ACTION.read_bytes(), IMAGE, DIGEST)
    assert pin_image(once, IMAGE, DIGEST) == once
    later = f"sha256:{'f' * 64}"
    assert pin_image(once, IMAGE, later) == pin_image(ACTION.read_bytes(), IMAGE, later)


def test_line_ends_and_a_missing_last_one_stay_as_they_are() -> None:
    for before in (b"runs:\r\n  image: Dockerfile\r\n", b"runs:\n  image: Dockerfile"):
        assert pin_image(before, IMAGE, DIGEST) == before.replace(b"Dockerfile", f"docker://{IMAGE}@{DIGEST}".encode())


@pytest.mark.parametrize(
    "digest",
    [
        "", "latest", DIGEST[7:], DIGEST[:-1], f"{DIGEST}0", DIGEST.upper(), f" {DIGEST}", f"{DIGEST}\n",
        f"sha512:{'0' * 64}", f"sha256:{'g' * 64}", f"{DIGEST}\n  args: [x]",
    ],
)  # fmt: skip
def test_what_is_no_digest_is_refused(digest: str) -> None:
    with pytest.raises(Refused, match="no digest"):
        pin_image(ACTION.read_bytes(), IMAGE, digest)


@pytest.mark.parametrize(
    "repository", ["", "stepflow", "ghcr.io/Org/stepflow", "ghcr.io/org/x y", f"{IMAGE}:1", IMAGE + "\n"]
)
def test_what_is_no_image_repository_is_refused(repository: str) -> None:
    with pytest.raises(Refused, match="no image repository"):
        pin_image(ACTION.read_bytes(), repository, DIGEST)


@pytest.mark.parametrize(
    "metadata",
    [
        b"runs:\n  using: docker\n",
        b"runs:\n  image: Dockerfile\n  image: Dockerfile\n",
        b"runs:\n  image: 'Dockerfile'\n",
        b"runs:\n  image: Dockerfile.dev\n",
        b"runs: { image: Dockerfile }\n",
    ],
)
def test_a_file_without_exactly_the_one_line_is_refused_and_not_guessed_at(metadata: bytes) -> None:
    with pytest.raises(Refused, match="exactly one line"):
        pin_image(metadata, IMAGE, DIGEST)
