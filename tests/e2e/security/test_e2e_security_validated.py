"""What is pushed is what the validators saw, and they saw what `setup` left: every way around that in the container.

Each attack shows first, by a tool of its own, that it works where nobody stands against it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.hosted_runner import RUNNER
from tests.e2e.repository import git

if TYPE_CHECKING:
    from tests.e2e.hosted_runner import Ended
    from tests.e2e.security.attacked import Attacked

pytestmark = [pytest.mark.e2e_security, pytest.mark.timeout(300)]
ROOT = (0, 0)
TYPE_ERROR = "printf 'UNVALIDATED: int = \"never checked\"\\n' >> sizes.py"
COMMIT_ALL = "git add --all; git commit --quiet --message 'Go on'"
CHECK_TYPES = "mypy --strict --cache-dir=/dev/null sizes.py"


def refused(attacked: Attacked, ended: Ended, *named: str, outcome: str = "refused") -> None:
    """Nothing was pushed, and the run says which paths were the reason."""
    assert ended.outputs["outcome"] == outcome, ended.log
    assert ended.outputs["validated"] == "false"
    for name in named:
        assert name in ended.outputs["reason"]
    assert attacked.pushed() == []
    assert attacked.world.pulls() == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("owner", [RUNNER, ROOT], ids=["a user's checkout", "root's checkout"])
def test_a_tree_that_is_swapped_behind_the_validators_is_refused(attacked: Attacked, owner: tuple[int, int]) -> None:
    """The validator's git knows neither the monitor nor the hook, and sees files that are not those of HEAD."""
    look = "cmp .git/bad .git/here; git status --porcelain; cmp .git/good .git/here && echo swapped"
    swap = "bash /opt/exploits/swap_tree.sh"
    ended = attacked.run(f"{swap}; {look}; cat .git/bad > .git/here", owner=owner)
    assert "swapped" in attacked.said()
    refused(attacked, ended, outcome="validation_failed")


REPAIR_LIB = "echo 'size: int = 1' > lib/code.py; git add lib; repaired=$(git write-tree --prefix=lib/)"
FORGE = "python3 /opt/exploits/forged_pack.py $broken $repaired; git reset --quiet"
#: The tree of a folder with a broken file, whose name is given to a repaired one.
FORGED = {
    "the base's": (
        RUNNER,
        f"broken=$(git rev-parse HEAD:lib); {REPAIR_LIB}; {FORGE}",
        ("refused", "lib/code.py"),
    ),
    "one of the work, whose true objects lie beside it": (
        ROOT,
        f"sed -i 1s/$/2/ lib/code.py; {COMMIT_ALL}; broken=$(git rev-parse HEAD:lib); {REPAIR_LIB}; "
        "git ls-tree -r $broken | cut -f1 | cut -d' ' -f3 | { echo $broken; cat; } | "
        f"git pack-objects -q .git/objects/pack/pack; git prune-packed; {FORGE}",
        ("validation_failed", "bad tree object"),
    ),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize(("owner", "forge", "held"), FORGED.values(), ids=FORGED)
def test_a_tree_whose_name_is_another_ones_is_seen_through(
    attacked: Attacked, owner: tuple[int, int], forge: str, held: tuple[str, str]
) -> None:
    (attacked.world.checkout / "lib").mkdir()
    (attacked.world.checkout / "lib/code.py").write_text("size: int = 'broken'  # 1\n")
    check = "mypy --strict --cache-dir=/dev/null lib/code.py"
    attacked.checks({"command": check})
    look = "git show HEAD:lib/code.py; git status --porcelain"
    ended = attacked.run(f"{forge}; {look}; {check} && echo green here", owner=owner)
    assert "size: int = 1\nSuccess: no issues found in 1 source file\ngreen here\n" in attacked.said()
    outcome, named = held
    refused(attacked, ended, named, outcome=outcome)


@pytest.mark.sample(1)
@pytest.mark.parametrize("owner", [RUNNER, ROOT], ids=["a user's checkout", "root's checkout"])
def test_a_validator_meets_a_git_and_shared_memory_as_set_up_left_them(
    attacked: Attacked, owner: tuple[int, int]
) -> None:
    """`setup` does as husky does: hooks in a folder that git ignores."""
    look = "sh /opt/exploits/astray.sh"
    attacked.checks({"command": look, "successWhen": "empty"})
    husky = "mkdir -p .husky/_; echo '*' > .husky/_/.gitignore; git config core.hooksPath .husky/_"
    lead_astray = "sh /opt/exploits/lead_astray.sh"
    ended = attacked.run(f"{TYPE_ERROR}; {COMMIT_ALL}; {lead_astray}; {look}", owner=owner, setup=husky)
    astray = ("git ls-files", "git grep", "git diff", "git log", "a hook", "/dev/shm")
    assert "".join(f"astray: {what}\n" for what in astray) in attacked.world.tool_results()
    assert (ended.outputs["outcome"], ended.outputs["validated"]) == ("completed", "true"), ended.log
    (branch,) = attacked.pushed()
    assert "UNVALIDATED" in git(attacked.world.server, "show", f"{branch}:sizes.py")


def test_a_validator_that_rewrites_tracked_files_does_so_for_itself_alone(attacked: Attacked) -> None:
    attacked.checks(
        {"command": "git status --porcelain", "successWhen": "empty"},
        {"command": "python3 rewrite.py"},
        {"command": CHECK_TYPES},
    )
    rewrite = 'printf \'import pathlib; pathlib.Path("sizes.py").write_text("fine = True\\\\n")\' > rewrite.py'
    ended = attacked.run(f"{TYPE_ERROR}; {rewrite}; {COMMIT_ALL}; {CHECK_TYPES} || echo not yet")
    assert "not yet" in attacked.said()
    refused(attacked, ended, "check-2", outcome="validation_failed")


def test_a_good_tree_over_a_bad_commit_is_refused_without_a_validator_that_asks_git(attacked: Attacked) -> None:
    attacked.checks({"command": CHECK_TYPES})
    ended = attacked.run(
        f"{TYPE_ERROR}; {COMMIT_ALL}; sed -i /UNVALIDATED/d sizes.py; {CHECK_TYPES} && echo green here"
    )
    assert "green here" in attacked.said()
    refused(attacked, ended, "sizes.py")


def test_files_that_no_commit_holds_are_not_what_the_commits_were_checked_with(attacked: Attacked) -> None:
    attacked.checks({"command": "python3 check.py"})
    plant = "printf 'import helper' > check.py; git add check.py; git commit -qm check; echo > helper.py"
    ended = attacked.run(f"{plant}; python3 check.py && echo green here")
    assert "green here" in attacked.said()
    refused(attacked, ended, "helper.py")


@pytest.mark.weekly  # nothing is attacked here
def test_a_report_that_a_validator_writes_is_not_pushed_and_refuses_nothing(attacked: Attacked) -> None:
    attacked.checks({"command": f"mkdir reports; {CHECK_TYPES} > reports/types.txt"})
    ended = attacked.run()
    assert (ended.outputs["outcome"], ended.outputs["validated"]) == ("completed", "true"), ended.log
    (branch,) = attacked.pushed()
    assert "reports" not in git(attacked.world.server, "ls-tree", "-r", "--name-only", branch)


BROKEN_TEST = "raise SystemExit('the sizes are wrong')"
IMPORT_TEST = "import sys; sys.path.insert(0, '.'); import test_sizes"
PLANT_BYTE_CODE = """python3 - <<'PY'
import importlib._bootstrap_external as loader, importlib.util, os
os.makedirs('__pycache__', exist_ok=True)
with open(importlib.util.cache_from_source('test_sizes.py'), 'wb') as file:
    file.write(loader._code_to_hash_pyc(compile('', 'test_sizes.py', 'exec'), b'12345678', False))
PY"""
FIND_SEGMENT = 'python3 -c "import ctypes, sys; sys.exit(ctypes.CDLL(None).shmget(77, 16, {}) < 0)"'
#: Checks that fail on what is pushed, and what makes them pass in the workspace.
POISON = {
    "a configuration of the checker": (CHECK_TYPES, "printf '[mypy]\\nignore_errors = True\\n' > ~/.mypy.ini"),
    "a module that Python loads by itself": (
        "python3 -c 'raise SystemExit(1)'",
        "at=$(python3 -m site --user-site); mkdir -p $at; echo 'import os; os._exit(0)' > $at/usercustomize.py",
    ),
    "the program that setup installed": ("checker", "printf '#!/bin/sh\\n' > ~/.local/bin/checker"),
    "a library of the program that setup installed": ("python3 ~/lib/main.py", "echo 'result = 0' > ~/lib/result.py"),
    "a dependency that git ignores": ("python3 vendor/main.py", "echo > vendor/main.py"),
    "byte code that git ignores": (f'python3 -c "{IMPORT_TEST}"', PLANT_BYTE_CODE),
    "byte code, with an empty environment": (f'env -i PATH="$PATH" python3 -E -c "{IMPORT_TEST}"', PLANT_BYTE_CODE),
    "a module instead of the library's": (
        "python3 -m unittest -q test_sizes",
        "echo > unittest.py; python3 -c \"import py_compile as p; p.compile('unittest.py', 'unittest.pyc')\"; "
        "rm unittest.py",
    ),
    "a file below a folder named .git": ("test -e lib/.git/code.py", "mkdir -p lib/.git; touch lib/.git/code.py"),
    "an empty folder": ("test -d results", "mkdir results"),
    "shared memory": ("grep -q green /dev/shm/state", "echo green > /dev/shm/state; chmod a+r /dev/shm/state"),
    "a segment of System V": (FIND_SEGMENT.format(0), FIND_SEGMENT.format(0o1666)),
}
SETUP = """mkdir -p ~/.local/bin ~/lib
printf '#!/bin/sh\\nexit 1\\n' > ~/.local/bin/checker; chmod +x ~/.local/bin/checker
printf 'import result; raise SystemExit(result.result)' > ~/lib/main.py; echo 'result = 1' > ~/lib/result.py
mkdir vendor; echo 'raise SystemExit(1)' > vendor/main.py; echo red > /dev/shm/state"""


@pytest.mark.sample(4)
@pytest.mark.parametrize(("check", "poison"), POISON.values(), ids=POISON)
def test_what_git_does_not_list_turns_no_validator_green(attacked: Attacked, check: str, poison: str) -> None:
    (attacked.world.checkout / ".gitignore").write_text("*.pyc\nvendor/\n")
    (attacked.world.checkout / "test_sizes.py").write_text(f"{BROKEN_TEST}\n")
    attacked.checks({"command": check, "guards": ["test_sizes.py"], "guard": "block"})
    try_it = f"{TYPE_ERROR}; {COMMIT_ALL}; {check} || echo red here; {poison}; {check} && echo green here"
    ended = attacked.run(try_it, setup=SETUP)
    said = attacked.said()
    assert "red here" in said, said
    assert "green here" in said, said
    assert ended.outputs["outcome"] == "validation_failed", ended.log
    assert attacked.pushed() == []
