"""Programs that `setup` brings: found in `~/.local/bin` of the tools' own home, after every other program."""

from __future__ import annotations

PLANT = """mkdir -p ~/.local/bin && cd ~/.local/bin
for name in brought git sh; do printf '#!/bin/sh\\necho planted\\n' > $name; chmod +x $name; done"""


def test_what_setup_installs_into_its_home_is_found_by_tools_and_validators(start):
    box = start(home_programs=True)
    assert box.sh(PLANT).exit_code == 0
    assert box.sh("brought").stdout == "planted\n"
    assert box.bash("brought").text == "planted\n"
    assert "~/.local/bin" in box.toolbox.isolation["path"]


def test_nothing_there_can_stand_in_for_a_program_of_the_system(start):
    box = start(home_programs=True)
    assert box.sh(PLANT).exit_code == 0
    assert box.sh("git --version").stdout.startswith("git version")
    assert box.sh("sh -c 'echo real'").stdout == "real\n"


def test_without_setup_the_path_ends_before_it(start):
    box = start()
    assert box.sh(PLANT).exit_code == 0
    assert box.sh("brought").exit_code == 127
    assert "~/.local/bin" not in box.toolbox.isolation["path"]
