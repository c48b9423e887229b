"""A change to what a validator depends on is noticed, and nothing stands in for its programs
(docs/threat-model.md, case 15)."""

from __future__ import annotations

import os
import time

import pytest

from stepflow.errors import InputError
from tests.build import make_validator

pytestmark = pytest.mark.whole

TYPES = make_validator("types", "true", guards=("tsconfig.json", "tools/**", "/package.json"))


@pytest.fixture
def project(checkout, start):
    """Starts a toolbox in a project that a validator depends on, and remembers it."""

    def begin(validator=TYPES, **options):
        for path in ("tsconfig.json", "package.json", "tools/check", "tools/deep/er/lib.js", "other.js"):
            (checkout / path).parent.mkdir(parents=True, exist_ok=True)
            (checkout / path).write_text(f"{path}\n")
        box = start(**options)
        guards = box.toolbox.guards((validator,))
        return box, lambda: guards.look_again(validator, passed=True)

    return begin


@pytest.mark.parametrize(
    ("work", "changed"),
    [
        ("echo x > other.js; touch tsconfig.json; mkdir tools/empty; echo {} > sub.json", ()),
        ("echo '{}' > tsconfig.json", ("tsconfig.json (changed)",)),
        ("rm tsconfig.json", ("tsconfig.json (removed)",)),
        ("mkdir web; echo '{}' > web/tsconfig.json", ("web/tsconfig.json (added)",)),
        ("mkdir web; echo '{}' > web/package.json", ()),
        ("echo 'exit 0' > tools/deep/er/lib.js", ("tools/deep/er/lib.js (changed)",)),
        ("touch tools/new; chmod +x tools/check", ("tools/check (changed)", "tools/new (added)")),
        (
            "mv tools ~/tools; ln -s ~/tools tools",
            ("tools (added)", "tools/check (removed)", "tools/deep/er/lib.js (removed)"),
        ),
        ("rm tsconfig.json; ln -s other.js tsconfig.json", ("tsconfig.json (changed)",)),
        (
            "rm tsconfig.json; mkdir tsconfig.json; echo x > tsconfig.json/x",
            ("tsconfig.json (removed)", "tsconfig.json/x (added)"),
        ),
        ("chmod 000 tsconfig.json", ("tsconfig.json (changed)",)),
        ("touch \"$(printf 'tools/a\\n::error::b')\"", ("tools/a\\n::error::b (added)",)),
        ("touch \"$(printf 'tools/\\377')\"", ("tools/\\udcff (added)",)),
    ],
)  # fmt: skip
def test_each_change_to_what_fits_the_patterns_is_told(project, work, changed):
    box, look = project()
    box.sh(work)
    assert look().changed == changed


@pytest.mark.whole
def test_a_file_without_end_cannot_hold_the_run_up(project):
    box, look = project()
    box.sh("rm tsconfig.json; ln -s /dev/zero tsconfig.json; truncate -s 1G tools/check")
    assert look().changed == ("tools/check (changed)", "tsconfig.json (changed)")


@pytest.mark.whole
def test_too_many_files_at_the_start_are_the_authors_to_mend(project, checkout):
    (checkout / "tools").mkdir()
    for number in range(20_001):
        os.mknod(checkout / "tools" / str(number))
    with pytest.raises(InputError, match="more than 20000 files fit") as caught:
        project()
    assert "tools/**" in caught.value.hint


class TestPrograms:
    FAKE = "printf '#!/bin/sh\\necho fake\\n' > {0}; chmod +x {0}"

    @pytest.mark.parametrize("name", ["git", "sh", "python3", "cat"])
    def test_a_fake_in_the_checkout_or_in_home_stands_in_for_no_program(self, project, name):
        box, _ = project(home_programs=True)
        for path in (name, f"~/{name}", f"~/.local/bin/{name}", f"bin/{name}", f"node_modules/.bin/{name}"):
            box.sh(f"mkdir -p $(dirname {path}); {self.FAKE.format(path)}")
        box.bash("export PATH=.:$HOME:$HOME/.local/bin:$PATH; alias git='echo fake'; hash -r")
        box.sh("echo 'PATH=.:~/.local/bin:$PATH' | tee ~/.profile ~/.bashrc ~/.bash_profile > ~/.env")
        assert box.sh(f"command -v {name}").stdout.startswith(("/usr/", "/bin/"))
        assert "fake" not in box.sh(f"{name} --version < /dev/null; true").stdout


def test_the_closing_is_heads_commit_and_says_when_there_is_none(project):
    box, _ = project()
    validator = make_validator("types", "tsc")
    guards = box.toolbox.guards((validator,))
    state = box.toolbox.tree()
    assert (guards.closing().commit, guards.closing().tree) == (state.commit, state.tree)
    box.sh("rm .git/HEAD")
    assert guards.closing().problem == "there is no commit yet"
    second = guards.look_again(validator, passed=True)
    assert second.problem == "git could not be asked before the checks: there is no commit yet"


def test_a_start_that_cannot_be_recorded_ends_the_run(start, checkout):
    box = start()
    box.sh("mkdir ~/closed; touch ~/closed/x; chmod 000 ~/closed")
    with pytest.raises(InputError, match="cannot be recorded after `setup`"):
        box.toolbox.guards((TYPES,))


def test_what_git_leaves_running_holds_nothing_up(start):
    box = start()
    box.sh("printf '#!/bin/sh\\ntouch called\\nsetsid sleep 300 > /dev/null &\\nexit 1\\n' > .git/monitor")
    box.sh("chmod +x .git/monitor")
    box.sh("git config core.fsmonitor $PWD/.git/monitor; git update-index --fsmonitor; rm -f called")
    box.sh("git config status.showUntrackedFiles no; echo x > hidden")
    begun = time.monotonic()
    assert box.toolbox.guards((TYPES,)).closing().problem == ""
    assert time.monotonic() - begun < 60
    assert (box.checkout / "called").exists()
