"""The image: what tools find in it, and what they do not."""

import shutil
import subprocess
from pathlib import Path

import pytest

from release.image_size import compressed_size, layers, table
from release.refusal import Refused
from release.try_image import try_image
from tests.docs.images import PAGE
from tests.e2e.act_job import RUNNER_IMAGE
from tests.e2e.repository import git
from tests.telemetry.journals import PLAUSIBLE

#: Bytes of the image with Node.js, git and Python, unpacked and compressed.
MOST_BYTES, MOST_COMPRESSED = 550_000_000, 200_000_000

# The first test waits for the image to be built.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def run_in_image(image: str, *arguments: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = ["docker", "run", "--rm", *options, image, *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def run_as_tool(image: str, script: str) -> str:
    done = run_in_image(image, "-ec", script, options=("--user=12345:54321", "--entrypoint=/bin/bash"))
    assert done.returncode == 0, done.stderr
    return done.stdout


TOOLS = ("bash", "git", "python3", "node", "npm", "npx", "rg", "make", "mypy")


def test_every_promised_tool_is_on_the_path_and_starts_for_an_unprivileged_user(image: str) -> None:
    each = f"for tool in {' '.join(TOOLS)}; do command -v $tool; HOME=/tmp $tool --version >/dev/null; done"
    assert [Path(line).name for line in run_as_tool(image, each).splitlines()] == [*TOOLS]


def test_what_a_person_tries_first_works_without_a_network_and_so_does_the_test_of_the_sandbox(
    image: str, release: Path, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(release, checkout)
    git(checkout, "init", "--quiet")
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "Begin")
    try_image(image, checkout)


def test_the_command_is_understood_with_its_name_and_without_it(image: str) -> None:
    shown = [run_in_image(image, *words, "--version").stdout for words in ([], ["stepflow"])]
    assert shown[0].startswith("stepflow ")
    assert shown[0] == shown[1]


def test_an_image_that_cannot_do_what_people_try_first_is_refused(release: Path, tmp_path: Path) -> None:
    """The image that everything is built upon has no stepflow."""
    with pytest.raises(Refused, match="ended with 127"):
        try_image(RUNNER_IMAGE, release)


@pytest.mark.weekly  # a run without it is slower, and ends the same
def test_everything_that_a_run_loads_is_there_as_bytecode(image: str) -> None:
    """Otherwise each run of everybody would compile it again: the container begins anew every time."""
    started = ["docker", "run", "--detach", "--network=none", image, "demo"]
    name = subprocess.run(started, capture_output=True, text=True, check=True).stdout.strip()
    try:
        assert subprocess.run(["docker", "wait", name], capture_output=True, text=True, check=True).stdout == "0\n"
        changed = subprocess.run(["docker", "diff", name], capture_output=True, text=True, check=True).stdout
    finally:
        subprocess.run(["docker", "rm", "--force", name], capture_output=True, check=True)
    assert [line for line in changed.splitlines() if line.endswith(".pyc") and "/opt/stepflow" in line] == []


@pytest.mark.weekly  # CI measures each image
def test_the_image_is_not_heavier_than_promised(image: str) -> None:
    assert sum(layer.unpacked for layer in layers(image)) <= MOST_BYTES, table(image)
    assert compressed_size(image) <= MOST_COMPRESSED


def test_the_image_has_what_sends_a_run_to_a_collector(image: str, tmp_path: Path) -> None:
    shutil.copy(PLAUSIBLE, tmp_path / "journal.jsonl")
    options = ("--network=none", f"--volume={tmp_path}:/run-folder")
    written = run_in_image(image, "show", "/run-folder", "--otlp", "/run-folder/otlp.jsonl", options=options)
    assert written.returncode == 0, written.stderr
    assert len((tmp_path / "otlp.jsonl").read_text().splitlines()) == 2
    sent = run_in_image(image, "show", "/run-folder", "--otlp", "http://127.0.0.1:1", options=options)
    assert (sent.returncode, "could not be reached (Connection refused)" in sent.stderr) == (1, True), sent.stderr


def test_python_and_node_are_those_that_the_page_names_and_node_a_long_term_release(image: str) -> None:
    python, node, help_text = run_as_tool(image, "python3 --version; node --version; stepflow --help").split("\n", 2)
    python, node = python.removeprefix("Python ").rpartition(".")[0], node.removeprefix("v").partition(".")[0]
    assert f"Python {python}, Node.js {node}," in PAGE.read_text(encoding="utf-8")
    assert (int(node) >= 24, int(node) % 2) == (True, 0)
    assert "validate" in help_text


def test_the_python_of_the_tools_has_none_of_the_packages_of_stepflow(image: str) -> None:
    names = ["stepflow", "anthropic", "pydantic", "github", "mypy"]
    code = f"from importlib.util import find_spec; print([name for name in {names} if find_spec(name)])"
    assert run_in_image(image, "-c", code, options=("--entrypoint=python3",)).stdout == "[]\n"


@pytest.mark.parametrize("entrypoint", ["", "stepflow"])
def test_no_module_of_the_checkout_or_of_the_environment_is_imported(
    image: str, tmp_path: Path, entrypoint: str
) -> None:
    for name in ("anthropic.py", "github.py", "stepflow.py", "sitecustomize.py", "usercustomize.py", "json.py"):
        (tmp_path / name).write_text(f"print('planted {name} was imported')\n")
    checkout_options = (f"--volume={tmp_path}:/checkout", "--workdir=/checkout", "--env=HOME=/checkout")
    chosen = (f"--entrypoint={entrypoint}",) if entrypoint else ()
    done = run_in_image(image, options=(*checkout_options, *chosen, "--env=PYTHONPATH=/checkout"))
    assert "planted" not in done.stdout + done.stderr


def test_the_image_asks_for_no_user_so_that_the_action_can_give_the_checkout_to_another_one(image: str) -> None:
    command = ["docker", "image", "inspect", "--format", "{{.Config.User}}|{{.Config.WorkingDir}}", image]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert shown in {"|", "|/"}
