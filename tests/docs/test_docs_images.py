"""docs/how-to/images.md: its lines for the workflow are clean, its tables speak of the Dockerfile as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.docs.images import PAGE, block, made_layers, told_layers, told_variants
from tests.docs.page import page_blocks
from tests.docs.readme import ROOT, USE_PAGE, named_block
from tests.docs.workflows import check_workflow, with_lines

#: The package without which the SDK cannot speak to a cloud.
CLOUDS = {"requirements-bedrock.txt": "boto3", "requirements-vertex.txt": "google-auth"}


def test_every_layer_of_the_image_stands_in_the_table_with_what_it_is_for() -> None:
    described, made = told_layers(), made_layers()
    assert len(described) == len(made)
    for row, instruction in zip(described, made, strict=True):
        assert " ".join(instruction.split()).startswith(row.made_by), (row, instruction)
        assert row.why


def test_the_table_of_variants_has_each_that_can_be_built_and_no_other() -> None:
    others = {f"requirements-{what}.txt" for what in ("bench", "browser", "dev", "image")}
    assert set(told_variants()) == {path.name for path in ROOT.glob("requirements*.txt")} - others


def test_each_variant_has_the_package_of_its_own_cloud_alone() -> None:
    for file in told_variants():
        packages = re.findall(r"^([\w-]+)(?:\[.*?\])?==", (ROOT / file).read_text(encoding="utf-8"), re.M)
        assert [cloud for cloud, package in CLOUDS.items() if package in packages] == [file] * (file in CLOUDS)


@pytest.mark.parametrize("number", range(2))
def test_the_inputs_to_paste_make_a_clean_workflow(number: int, tmp_path: Path) -> None:
    given = [each for each in page_blocks(PAGE) if each.note == "with"][number]
    check_workflow(with_lines(yaml.safe_load(given.text)), tmp_path)


def test_the_step_with_an_image_of_ones_own_makes_a_clean_workflow(tmp_path: Path) -> None:
    lines = block("steps").text.splitlines(keepends=True)
    check_workflow(named_block("workflow", USE_PAGE).partition("      - uses: org/")[0] + "".join(lines), tmp_path)


def test_the_page_has_no_block_that_nothing_tries() -> None:
    """The Dockerfile and the commands are tried by tests/e2e."""
    kinds = [(each.language, each.note or each.file) for each in page_blocks(PAGE)]
    assert kinds == [
        ("yaml", "with"), ("yaml", "with"), ("dockerfile", "Dockerfile"), ("yaml", "steps"), ("sh", ""),
    ]  # fmt: skip
