"""Nothing that tools leave stands in for the programs of commands (docs/threat-model.md, case 15)."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.whole

FAKE = "printf '#!/bin/sh\\necho fake\\n' > {0}; chmod +x {0}"


@pytest.mark.parametrize("name", ["git", "sh", "python3", "cat"])
def test_a_fake_in_the_checkout_or_in_home_stands_in_for_no_program(start, name):
    box = start(home_programs=True)
    for path in (name, f"~/{name}", f"~/.local/bin/{name}", f"bin/{name}", f"node_modules/.bin/{name}"):
        box.sh(f"mkdir -p $(dirname {path}); {FAKE.format(path)}")
    box.bash("export PATH=.:$HOME:$HOME/.local/bin:$PATH; alias git='echo fake'; hash -r")
    box.sh("echo 'PATH=.:~/.local/bin:$PATH' | tee ~/.profile ~/.bashrc ~/.bash_profile > ~/.env")
    assert box.sh(f"command -v {name}").stdout.startswith(("/usr/", "/bin/"))
    assert "fake" not in box.sh(f"{name} --version < /dev/null; true").stdout


def test_a_monitor_that_tools_have_configured_is_not_run(start):
    box = start()
    box.sh("printf '#!/bin/sh\\ntouch called\\nexit 1\\n' > .git/monitor; chmod +x .git/monitor")
    box.sh("git config core.fsmonitor $PWD/.git/monitor; git update-index --fsmonitor; git status; rm called")
    assert box.toolbox.tree().problem == ""
    assert not (box.checkout / "called").exists()
    box.sh("git status")
    assert (box.checkout / "called").exists(), "else this shows nothing"
