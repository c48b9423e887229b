"""What a newcomer does wrong at each part of docs/tutorial.md is told with what to do (acceptance of the tutorial).

An agent's name with a slip and a forbidden pull request are looked at in their own files.
"""

from __future__ import annotations

import pytest

from tests.checkout import labeled
from tests.world import World, solve

pytestmark = pytest.mark.whole


def test_a_missing_key_is_told_with_the_secret_to_add(world: World) -> None:
    world.runner.inputs["anthropic-api-key"] = ""
    done = world.run([])
    assert done.exit_code == 2
    assert "anthropic-api-key: ${{ secrets.ANTHROPIC_API_KEY }}" in done.outputs["reason"]
    assert world.wrote_nothing(but_comments=1)


def test_a_label_that_starts_nothing_says_which_labels_do(world: World) -> None:
    done = world.runner.run(labeled("fixer"))
    assert (done.exit_code, done.outputs["outcome"]) == (0, "skipped")
    assert "starts no agent; trigger-labels: agent:*" in done.outputs["reason"]


def test_a_tree_that_is_dirty_before_the_run_is_told_with_its_files(world: World) -> None:
    (world.checkout / "build.log").write_text("from yesterday\n")
    done = world.run([])
    (warning,) = [line for line in done.log.splitlines() if "[Checkout]" in line]
    assert "Before the run, these files are not committed: build.log." in warning
    assert "name them in .gitignore" in warning


def test_the_way_out_of_a_dirty_tree_is_not_cut_off_by_the_names_of_its_files(world: World) -> None:
    for number in range(5):
        folder = world.checkout / f"{number}-a-folder-with-a-name-that-is-as-long-as-the-way-to-a-file"
        folder.mkdir()
        (folder / "file").touch()
    done = world.run([])
    (warning,) = [line for line in done.log.splitlines() if "[Checkout]" in line]
    assert (
        "these files are not committed: 0-a-folder-with-a-name-that-is-as-long-as-the-way-to-a-file/ and 4 more."
        in warning
    )
    assert warning.endswith("name them in .gitignore and commit that.")


def test_what_setup_leaves_behind_is_told_before_the_model_is_asked(world: World) -> None:
    done = world.run([], setup="for at in 1 2 3 4 5 6 7; do touch made-$at; done")
    (warning,) = [line for line in done.log.splitlines() if "[Checkout]" in line]
    assert "After setup, these files are not committed: made-1, made-2, made-3, made-4, made-5 and 2 more." in warning
    assert done.log.index("[Checkout]") < done.log.index("Iteration 1")


def test_a_clean_tree_is_not_spoken_of(world: World) -> None:
    assert "[Checkout]" not in world.run([], setup="true").log


def test_a_missing_toolchain_is_told_with_the_inputs_that_install_it(world: World) -> None:
    world.edit(
        "steps_registry.json", lambda registry: registry["validators"]["greeting"].update(command="cargo-of-mars test")
    )
    done = world.run(solve())
    assert "with the inputs setup or apt-packages" in done.outputs["reason"]
