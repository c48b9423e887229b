"""Who the tools are, what they see, and what they see."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from toolbox_world import AS_ROOT, Box, granted, root_only, run_as_other_user, stays_root

from stepflow.domain.checkout import CommandRequest
from stepflow.domain.words import Isolation
from stepflow.errors import InputError, IsolationError
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.environment import SYSTEM_PATH, build_environment, tool_programs
from stepflow.sandbox.isolation import Choice, SandboxState, ToolboxOptions, judge_layers

ENVIRONMENT = {
    *(
        "PATH",
        "HOME",
        "TMPDIR",
        "XDG_RUNTIME_DIR",
        "LANG",
        "TERM",
        "NO_COLOR",
        "CI",
        "PAGER",
        "GIT_PAGER",
        "GIT_TERMINAL_PROMPT",
    ),
    *("PYTHONDONTWRITEBYTECODE", "GIT_CONFIG_COUNT"),
    *(f"GIT_CONFIG_{part}_{number}" for part in ("KEY", "VALUE") for number in range(5)),
}
BY_THE_SHELL = {"PWD", "SHLVL", "_", "OLDPWD"}


def ids(box) -> tuple[int, int, list[str]]:
    uid, gid, groups = box.sh("id -u; id -g; id -G").stdout.splitlines()
    return int(uid), int(gid), groups.split()


def states(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Owner, group and mode of everything below."""
    paths = [folder, *folder.rglob("*")]
    return {str(p.relative_to(folder)): (i.st_uid, i.st_gid, i.st_mode) for p in paths for i in [p.lstat()]}


class TestEnvironment:
    def test_holds_nothing_that_was_not_put_there(self, monkeypatch, start):
        for name in ("INPUT_GITHUB-TOKEN", "ACTIONS_RUNTIME_TOKEN", "GITHUB_ENV", "GITHUB_OUTPUT", "ANTHROPIC_API_KEY"):
            monkeypatch.setenv(name, "canary")
        monkeypatch.setenv("LD_PRELOAD", "")
        box = start()
        for text in (box.bash("env").output, box.sh("env").stdout, box.bash("cat /proc/self/environ").output):
            assert "canary" not in text
        names = {line.partition("=")[0] for line in box.sh("env").stdout.splitlines()}
        assert names - BY_THE_SHELL == ENVIRONMENT

    def test_home_and_tmp_are_private_and_of_the_run(self, box):
        text = box.sh("stat -c '%a %u' $HOME $TMPDIR; id -u; ls -A $HOME $TMPDIR; dirname $HOME $TMPDIR").stdout
        home, tmp, uid, *_, folder, same = text.split("\n")[:-1]
        assert home == tmp == f"700 {uid}"
        assert folder == same
        assert str(box.checkout) not in folder

    @pytest.mark.sample(5)
    @pytest.mark.parametrize(
        "name",
        [
            *("PATH", "HOME", "CI", "INPUT_X", "ACTIONS_RUNTIME_TOKEN", "GITHUB_TOKEN", "GITHUB_ENV", "GITHUB_OUTPUT"),
            *("GIT_CONFIG_COUNT", "GIT_CONFIG_GLOBAL", "LD_PRELOAD", "BASH_ENV", "a-b", "", "1X", "X=Y"),
        ],
    )
    def test_names_that_would_open_a_way_are_refused(self, checkout, name):
        before = states(checkout)
        with pytest.raises(InputError, match="pass-env"):
            Toolbox.start(checkout, options=ToolboxOptions(pass_env={name: "x"}))
        assert states(checkout) == before

    def test_the_path_is_fixed_with_the_interpreters_programs_last(self):
        nowhere = Path("/nowhere")
        system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        programs = tool_programs(ToolboxOptions(), None).folders
        environment = build_environment(checkout=nowhere, private=nowhere, programs=programs, options=ToolboxOptions())
        assert environment["PATH"] == f"{system}:{Path(sys.executable).parent}"

    @root_only
    def test_an_interpreter_that_the_tools_cannot_enter_is_no_place_for_programs(self, start, open_folder, monkeypatch):
        closed = open_folder / "closed"
        closed.mkdir(mode=0o700)
        (closed / "python").symlink_to(Path(sys.executable).resolve())
        monkeypatch.setattr(sys, "executable", str(closed / "python"))
        box = start()
        assert box.bash("echo $PATH").output == ":".join(SYSTEM_PATH) + "\n"
        assert f"behind {closed}" in box.toolbox.isolation["path"]
        missing = box.toolbox.run_command(CommandRequest(argv=("no-such-program",), timeout=5))
        assert missing.error == "`no-such-program` could not be started: No such file or directory"

    def test_programs_planted_in_the_checkout_and_home_are_not_run(self, start, checkout):
        for name in ("git", "sh", "bash", "ls", "python3"):
            (checkout / name).write_text("#!/bin/sh\necho planted\n")
            (checkout / name).chmod(0o755)
        for name in ("json.py", "sitecustomize.py", "anthropic.py", "child.py", "usercustomize.py"):
            (checkout / name).write_text("open('planted', 'w')\n")
        (checkout / "planted.pth").write_text("import os; open('planted', 'w')\n")
        box = start()
        assert "planted" not in box.bash("cp * $HOME; cd .; type git; ls > /dev/null; git --version").output
        assert "planted" not in box.sh("git --version; ls > /dev/null").stdout
        assert box.toolbox.tree().commit
        assert not (checkout / "planted").exists()


#: Programs that `setup` brings into `~/.local/bin` of the tools' own home.
PLANT = """mkdir -p ~/.local/bin && cd ~/.local/bin
for name in brought git sh; do printf '#!/bin/sh\\necho planted\\n' > $name; chmod +x $name; done"""


class TestProgramsOfSetup:
    def test_what_setup_installs_into_its_home_is_found_by_tools_and_validators(self, start):
        box = start(home_programs=True)
        assert box.sh(PLANT).exit_code == 0
        assert box.sh("brought").stdout == "planted\n"
        assert box.bash("brought").output == "planted\n"
        assert "~/.local/bin" in box.toolbox.isolation["path"]


class TestStates:
    @root_only
    def test_with_best_effort_it_stays_root_without_capabilities_and_warns(self, start, checkout):
        box = start(**stays_root(checkout))
        assert ids(box) == (0, 0, ["0"])
        capabilities = box.sh("grep -E '^Cap(Prm|Eff|Bnd|Amb)' /proc/self/status").stdout.split()[1::2]
        assert {int(bits, 16) for bits in capabilities} == {0}
        assert [warning.partition(":")[0] for warning in box.toolbox.warnings] == ["uid"]

    @pytest.mark.parametrize(
        "fact",
        [
            *({"no_new_privs": False}, {"subreaper": False}, {"dies_with_parent": False}),
            *({"landlock_abi": 0, "landlock_problem": "no_new_privs"}, {"seccomp_problem": "no_new_privs"}),
        ],
        ids=lambda fact: next(iter(fact)),
    )
    def test_where_the_kernel_lacks_a_layer_it_is_refused_or_warned_about(self, fact):
        facts, choice = granted(**fact), Choice(identity=None, reason="kept")
        with pytest.raises(IsolationError, match=r"darwin|no_new_privs"):
            judge_layers(SandboxState(facts=facts, choice=choice, options=ToolboxOptions(), path="fixed"))
        relaxed = ToolboxOptions(isolation=Isolation.BEST_EFFORT)
        layers = judge_layers(SandboxState(facts=facts, choice=choice, options=relaxed, path="fixed"))
        assert len([layer for layer in layers if layer.missing]) == 1


@pytest.mark.skipif(AS_ROOT, reason="for ordinary users")
def test_an_ordinary_user_stays_who_it_is_and_the_state_says_so(box):
    assert ids(box)[0] == os.getuid()
    assert "not root" in box.toolbox.isolation["uid"]


NOT_ROOT = """
import os, sys
from pathlib import Path
from stepflow.domain.checkout import CommandRequest
from stepflow.sandbox.box import Toolbox
with Toolbox.start(Path(sys.argv[1])) as box:
    connect = "import socket; socket.socket(1).connect('../agent.sock')"
    argv = ("sh", "-c", f'id -u; git commit -q --allow-empty -m x && echo ok; python3 -c "{connect}" 2>&1 | tail -n 1')
    result = box.run_command(CommandRequest(argv=argv, timeout=9))
    print(os.getuid(), result.stdout.splitlines(), box.isolation["uid"])
"""


@pytest.mark.whole
@root_only
def test_a_parent_that_is_no_root_process_keeps_its_user_but_not_the_way_to_its_services(checkout, packages):
    done = run_as_other_user(NOT_ROOT, checkout, packages=packages)
    refused = "PermissionError: [Errno 13] Permission denied"
    assert done.stdout == (f"12345 ['12345', 'ok', '{refused}'] 12345 (the parent is not root and keeps its user)\n"), (
        done.stderr
    )


WITHOUT_RIGHTS = """
import sys
from pathlib import Path
from stepflow.errors import IsolationError
from stepflow.domain.words import Isolation
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.isolation import ToolboxOptions
try:
    Toolbox.start(Path(sys.argv[1]))
except IsolationError as exc:
    print(exc.message)
with Toolbox.start(Path(sys.argv[1]), options=ToolboxOptions(isolation=Isolation.BEST_EFFORT)) as box:
    print(*box.warnings)
"""


@root_only
def test_a_root_parent_that_may_not_change_users_is_refused_or_warns(checkout):
    setpriv = shutil.which("setpriv")
    if not setpriv:
        pytest.skip("no setpriv on this machine")
    argv = [setpriv, "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", WITHOUT_RIGHTS, str(checkout)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    refusal, warning = done.stdout.splitlines()
    assert "this root process may not change users or owners" in refusal
    assert warning.startswith("uid: 0, root without capabilities (this root process may not change users")


@root_only
class TestRootParent:
    @pytest.mark.parametrize("owner", [0, 12345])
    def test_the_tools_get_a_user_and_group_that_nothing_else_has(self, start, checkout, owner):
        for path in (checkout, *checkout.rglob("*")):
            os.chown(path, owner, owner, follow_symlinks=False)
        box = start()
        uid, gid, groups = ids(box)
        assert uid not in (0, owner)
        assert groups == [str(gid)]
        assert uid not in {user.pw_uid for user in pwd.getpwall()}
        assert gid not in {group.gr_gid for group in grp.getgrall()}
        assert box.toolbox.isolation["uid"] == f"{uid} (nobody else's)"

    def test_no_id_of_the_launcher_is_root_and_it_has_no_capability(self, box):
        status = Path(f"/proc/{box.launcher}/status").read_text()
        lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert "0" not in lines["Uid"].split() + lines["Gid"].split()
        assert int(lines["CapEff"], 16) == int(lines["CapPrm"], 16) == 0
        assert lines["NoNewPrivs"] == "1"

    def test_two_toolboxes_have_different_users(self, start, open_folder):
        (open_folder / "other").mkdir()
        first = ids(start())[0]
        with Toolbox.start(open_folder / "other") as second:
            assert ids(Box(second, open_folder / "other"))[0] != first

    @pytest.mark.sample(2)
    @pytest.mark.parametrize("file", ["environ", "mem", "maps", "fd", "cwd/"])
    def test_the_parents_and_the_launchers_proc_entries_are_closed(self, box, file):
        for pid in (str(os.getpid()), "$PPID", "1"):
            result = box.bash(f"cat /proc/{pid}/{file} 2>&1 || ls /proc/{pid}/{file}")
            assert "Permission denied" in result.output

    def test_the_tools_can_do_everything_in_the_workspace(self, box):
        result = box.sh(
            "chmod +x hello.txt && mkdir d && mv hello.txt d && git add -A && git commit -qm two && git status"
        )
        assert (result.exit_code, result.stderr) == (0, "")
        assert "nothing to commit" in result.stdout

    def test_a_workspace_behind_a_closed_folder_is_refused_with_its_name(self, checkout, open_folder):
        open_folder.chmod(0o700)
        before = states(checkout)
        with pytest.raises(IsolationError, match=f"{open_folder}, above the workspace") as caught:
            Toolbox.start(checkout)
        assert "best-effort" in caught.value.hint
        assert states(checkout) == before

    def test_with_best_effort_the_tools_of_such_a_workspace_stay_root_and_it_warns(self, start, open_folder):
        open_folder.chmod(0o700)
        box = start(isolation=Isolation.BEST_EFFORT)
        assert box.bash("echo x > new; cat new; id -u").output == "x\n0\n"
        assert str(open_folder) in box.toolbox.warnings[0]

    def test_a_private_folder_that_the_tools_cannot_reach_is_told_and_nothing_stays_there(self, checkout, open_folder):
        private = open_folder / "private"
        private.mkdir(mode=0o700)
        with pytest.raises(IsolationError, match=r"cannot write to .*\(HOME\)"):
            Toolbox.start(checkout, options=ToolboxOptions(private_root=private))
        assert list(private.iterdir()) == []


ALONE = ("unshare", "--user", "--map-root-user")


@pytest.mark.whole
@root_only
@pytest.mark.skipif(
    subprocess.run([*ALONE, "true"], check=False, capture_output=True).returncode != 0,
    reason="this machine opens no user namespaces",
)
def test_a_machine_on_which_no_user_id_is_left_is_told_so() -> None:
    """In a user namespace with one id, root's own, there is none that the tools could have."""
    code = "import sys; from pathlib import Path; from stepflow.sandbox.box import Toolbox; "
    code += "Toolbox.start(Path(sys.argv[1]))"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        done = subprocess.run([*ALONE, sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "No user or group id between 61184 and 65519 is free on this machine." in done.stderr
    assert "IsolationError" in done.stderr
