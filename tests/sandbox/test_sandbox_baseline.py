"""A validator meets HOME and TMPDIR as `setup` left them, whatever tools and other validators did
(docs/threat-model.md, case 37)."""

from __future__ import annotations

import pytest

from stepflow.domain.checkout import CommandRequest
from tests.build import make_validator

pytestmark = pytest.mark.whole

SETUP = """
mkdir -p ~/.local/bin ~/.config/tool ~/empty $TMPDIR/cache
printf '#!/bin/sh\\necho real\\n' > ~/.local/bin/brought; chmod 755 ~/.local/bin/brought
echo strict > ~/.config/tool/rules; ln -s rules ~/.config/tool/link; ln ~/.config/tool/rules ~/second-name
chmod 700 ~/.config; echo kept > $TMPDIR/cache/kept
"""
LISTING = """
cd ~; find . -printf '%P %M %l\\n' | sort; find . -type f | sort | xargs cat
cd $TMPDIR; find . -printf '%P %M %l\\n' | sort; find . -type f | sort | xargs cat
"""


class Checked:
    """A toolbox after its set-up, and commands in it as validators are run."""

    def __init__(self, box) -> None:
        self.box = box
        assert box.sh(SETUP).exit_code == 0
        self.guards = box.toolbox.guards((make_validator("any", "true"),))

    def check(self, command: str, timeout: float = 20.0):
        request = CommandRequest(argv=("sh", "-c", command), timeout=timeout, checks=True)
        return self.box.toolbox.run_command(request)


@pytest.fixture
def checked(start):
    return Checked(start(home_programs=True))


CHANGES = {
    "a file added": ("echo ignore_errors > ~/.mypy.ini", ("HOME",)),
    "a content with size and times kept": (
        "touch -r ~/.config/tool/rules ref; printf 'weaken\n' > ~/.config/tool/rules;"
        "touch -r ref ~/.config/tool/rules; rm ref", ("HOME",),
    ),
    "a mode": ("chmod 644 ~/.local/bin/brought; chmod 755 ~/.config", ("HOME",)),
    "a file removed": ("rm ~/.local/bin/brought", ("HOME",)),
    "a folder made a link": ("mv ~/.config ~/elsewhere; ln -s elsewhere ~/.config", ("HOME",)),
    "a file made a folder": ("rm ~/second-name; mkdir ~/second-name; echo 1 > $TMPDIR/a", ("HOME", "TMPDIR")),
    "temporary files": ("echo 1 > $TMPDIR/a; rm $TMPDIR/cache/kept", ("TMPDIR",)),
    "folders that nobody may enter": ("mkdir -p ~/closed/in; chmod 000 ~/closed; chmod 500 ~/.local/bin", ("HOME",)),
    "a tree deeper than any path": (
        "python3 -c \"import os\nfor _ in range(3000): os.mkdir('d' * 50); os.chdir('d' * 50)\"", ("HOME",),
    ),
}  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize(("change", "restored"), CHANGES.values(), ids=CHANGES)
def test_a_validator_meets_what_setup_left_and_is_told_so(checked, change, restored):
    before = checked.check(LISTING).stdout
    checked.box.bash(f"cd ~; {change}")
    after = checked.check(LISTING)
    assert (after.stdout, after.restored) == (before, restored)
    assert "real" in checked.check("brought").stdout


def test_a_tool_keeps_what_it_left_until_the_next_check(checked):
    checked.box.bash("echo 1 > ~/mine")
    assert checked.box.bash("cat ~/mine").text == "1\n"
    checked.check("true")
    assert checked.box.bash("cat ~/mine").is_error


def test_planted_byte_code_is_not_what_python_runs(checked):
    plant = (
        "echo 'answer = 1' > size.py; printf '__pycache__/\\n' > .gitignore; python3 - <<'PY'\n"
        "import importlib._bootstrap_external as b, importlib.util as u, os, sys\n"
        "code = compile('answer = 2', 'size.py', 'exec'); os.makedirs('__pycache__', exist_ok=True)\n"
        "open(u.cache_from_source('size.py'), 'wb').write(b._code_to_hash_pyc(code, b'x' * 8, False))\n"
        "PY\n"
    )
    checked.box.bash(plant)
    ask = "python3 -c 'import sys; sys.path.insert(0, \".\"); import size; print(size.answer)'"
    assert checked.box.sh(ask).stdout == "2\n"
    assert checked.check(ask).stdout == "1\n"
