"""Which versions there are, and to which release a major tag belongs."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from release.refusal import Refused
from release.versions import is_newest, read_version


@pytest.mark.parametrize(
    "text", ["", "1", "1.2", "v1.2.3", "1.2.3-rc.1", "1.2.3.4", "01.2.3", "1.2.3\n", "١.2.3", "latest"]
)
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="no version"):
        read_version(text)


@pytest.mark.parametrize(
    ("text", "tags", "newest"),
    [
        ("1.0.0", [], True),
        ("1.10.0", ["v1.9.0", "v1.9.9"], True),
        ("1.2.4", ["v1.2.3", "v1.3.0"], False),
        ("1.3.0", ["v2.0.0", "v1.2.0"], True),
        ("1.3.0", ["v1.3.0", "v1"], True),
        ("1.3.0", ["v1.4.0-rc.1", "nightly", "v1.9"], True),
    ],
)
def test_the_major_tag_goes_to_the_latest_release_of_its_major_version(
    text: str, tags: list[str], newest: bool
) -> None:
    assert is_newest(read_version(text), tags) is newest


def test_a_version_names_its_two_tags() -> None:
    version = read_version("12.0.7")
    assert (str(version), version.tag, version.major_tag) == ("12.0.7", "v12.0.7", "v12")


def test_everything_that_uses_the_action_names_the_major_version_of_the_next_release() -> None:
    project = Path(__file__).parents[2]
    version = read_version(
        tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    )
    found = ["git", "grep", "-hoE", r"org/stepflow-action(/\S+)?@v[0-9.]+", "--", ":!RELEASING.md", ":!tests"]
    uses = subprocess.run(found, cwd=project, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {re.sub(r".*@", "", use) for use in uses} == {version.major_tag}
