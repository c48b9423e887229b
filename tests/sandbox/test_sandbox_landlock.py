"""Which files tools can open, whoever they belong to (docs/threat-model.md, cases 3 and 4)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from toolbox_world import AS_ROOT, Box, run_as_other_user, stays_root

import stepflow.sandbox.child
from stepflow.domain.words import Isolation
from stepflow.errors import IsolationError
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.child import landlock
from stepflow.sandbox.isolation import ToolboxOptions

SANDBOX = Path(stepflow.sandbox.child.__file__).parent.parent
NO_LANDLOCK = {"disabled_layers": frozenset({"landlock"}), "isolation": Isolation.BEST_EFFORT}


def kernel_abi() -> int:
    try:
        return landlock.kernel_abi()
    except OSError:
        return 0


pytestmark = pytest.mark.skipif(
    kernel_abi() < landlock.ABI_TRUNCATE, reason="needs the third version of Landlock or a later one"
)


def plant(box: Box, runner: Path) -> None:
    """A folder beside the checkout that belongs to whoever the tools are, as the runner's mounts do."""
    for leftover in (runner, *(box.checkout / name for name in ("way", "inside"))):
        subprocess.run(["rm", "-rf", "--", str(leftover)], check=True)
    runner.mkdir()
    (runner / "secret").write_text("canary")
    (box.checkout / "hello.txt").write_text("hello\n")
    uid = int(box.sh("id -u").stdout)
    for path in (runner, runner / "secret", box.checkout / "hello.txt"):
        os.chown(path, uid if os.getuid() == 0 else -1, -1)


ATTEMPTS = {
    "read": "cat {0}/secret",
    "list": "ls {0}/",
    "append": "echo X=1 >> {0}/secret",
    "make": "echo x > {0}/new",
    "make a folder": "mkdir {0}/new",
    "link in": "ln {0}/secret inside && cat inside",
    "link out": "ln hello.txt {0}/new",
    "rename out": "mv -T hello.txt {0}/new",
    "remove": "rm -f {0}/secret",
    "truncate": "truncate -s 0 {0}/secret",
    "fifo": "mkfifo {0}/new",
    "through a link": "ln -s {0} way && cat way/secret",
    "through proc": "cat /proc/self/root{0}/secret",
    "glob": "cat {0}/s*t",
}
if AS_ROOT:  # who keeps the parent's user has no unix sockets at all
    ATTEMPTS["socket"] = "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"{0}/new\")'"


class TestOutside:
    @pytest.mark.sample(4)
    @pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS)
    def test_files_of_the_tools_own_user_are_closed(self, shared_box, attempt):
        runner = shared_box.checkout.parent / "runner"
        plant(shared_box, runner)
        ended = shared_box.sh(attempt.format(runner))
        assert ended.exit_code != 0
        assert "canary" not in ended.stdout
        assert [path.name for path in runner.iterdir()] == ["secret"]
        assert (runner / "secret").read_text() == "canary"

    @pytest.mark.whole
    def test_without_the_layer_each_attempt_succeeds_and_the_state_says_so(self, start, open_folder):
        box = start(**NO_LANDLOCK)
        runner = open_folder / "runner"
        failed = {}
        for name, attempt in ATTEMPTS.items():
            plant(box, runner)
            if (ended := box.sh(attempt.format(runner))).exit_code != 0:
                failed[name] = ended
        assert failed == {}
        assert box.toolbox.isolation["landlock"] == "switched off"
        assert "landlock: switched off" in box.toolbox.warnings

    def test_the_places_where_systems_keep_data_are_closed(self, shared_box):
        for runner in ("/", "/tmp", "/var", "/run", "/home", "/root", "/srv", "/mnt", "/dev"):
            assert "Permission denied" in shared_box.sh(f"ls {runner}").stderr or not Path(runner).exists()

    def test_system_files_can_be_read_but_not_written(self, shared_box):
        assert shared_box.sh("cat /etc/passwd /proc/version > /dev/null && ls /usr/bin /sys > /dev/null").exit_code == 0
        assert shared_box.sh("echo 0 > /proc/self/oom_score_adj").exit_code != 0

    def test_a_demanded_layer_that_is_left_out_refuses(self, checkout):
        options = ToolboxOptions(disabled_layers=frozenset({"landlock"}))
        with pytest.raises(IsolationError, match=r"landlock: switched off"):
            Toolbox.start(checkout, options=options)


class TestInside:
    """What must go on working."""

    def test_a_terminal_of_the_same_user_is_closed(self, start, checkout):
        """What somebody types there, such as a password, is not for the tools to read."""
        keyboard, terminal = os.openpty()
        try:
            box = start(**stays_root(checkout))
            os.write(keyboard, b"password\n")
            seen = box.bash(f"head -n 1 {os.ttyname(terminal)}; echo spoofed > {os.ttyname(terminal)}")
        finally:
            os.close(terminal)
            os.close(keyboard)
        assert "password" not in seen.output
        assert seen.output.count("Permission denied") == 2

    @pytest.mark.sample(3)
    @pytest.mark.parametrize(
        "command",
        [
            "echo x > /dev/null && head -c 4 /dev/zero /dev/random /dev/urandom > $TMPDIR/bytes",
            "echo a > a && mkdir -p b $TMPDIR/c && mv a b/a && ln b/a d && mv d $TMPDIR/c/ && mv $TMPDIR/c $HOME/",
            "mkfifo pipe && (echo through > pipe &) && test $(cat pipe) = through && rm pipe",
            "cat <(echo one) - <<< two | tee /dev/stderr > /dev/stdout",
            "git init -q $TMPDIR/other && git clone -q . $HOME/clone && git -C $HOME/clone log -1 --oneline",
            "git checkout -qb side && git commit -q --allow-empty -m x && git stash list && git gc -q && git status",
            "ps -e > /dev/null && nproc && free > /dev/null && df . > /dev/null",
            "set -m; sleep 5 & kill %1; wait; true",
            "test -t 0; tty < /dev/ptmx; id; locale > /dev/null",
            "mktemp && mktemp -d && mktemp -p . x.XXXX",
        ],
    )
    def test_ordinary_commands_work(self, shared_box, command):
        ended = shared_box.toolbox.run_command(bash_request(command))
        assert (ended.exit_code, "denied" in ended.stderr) == (0, False), ended.stderr

    @pytest.mark.sample(2)
    @pytest.mark.parametrize(
        "program",
        [
            "import multiprocessing as m; l = m.Lock(); q = m.Queue(); q.put(1); print(q.get())",
            "from multiprocessing.shared_memory import SharedMemory as S; S(create=True, size=9).unlink(); print(1)",
            "import multiprocessing as m; p = m.Pool(2); print(sum(p.map(abs, [-1, 0]))); p.close(); p.join()",
            "import pty; pty.spawn(['/bin/echo', '1'])",
            "import asyncio; print(asyncio.run(asyncio.create_subprocess_exec('true')) and 1)",
            "import tempfile; tempfile.TemporaryFile().write(b'x'); print(1)",
            "import socket; a, b = socket.socketpair(); a.send(b'1'); print(b.recv(1).decode())",
            "import os; a, b = os.openpty(); os.write(b, b'1'); print(os.read(a, 1).decode())",
        ],
    )
    def test_python_programs_work(self, shared_box, program):
        (shared_box.checkout / "program.py").write_text(program)
        ended = shared_box.sh("python3 program.py")
        assert (ended.exit_code, ended.stdout.strip()) == (0, "1"), ended.stderr


def bash_request(command: str):
    from stepflow.domain.checkout import CommandRequest

    return CommandRequest(argv=("bash", "-c", command), timeout=20)


#: Two runs of one ordinary user, who have one user: each layer of argv[3] is left out. Prints what one can do to the
#: other, and whether it can hold on to its shell.
TWO_RUNS = """
import json, os, sys
from pathlib import Path
from stepflow.domain.checkout import CommandRequest
from stepflow.domain.conversation import ToolUse
from stepflow.domain.words import Isolation
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.child import landlock
from stepflow.sandbox.isolation import ToolboxOptions

ATTACH = (
    "import ctypes, sys, os; c = ctypes.CDLL(None); p = int(sys.argv[1]); "
    "sys.exit(c.ptrace(16, p, 0, 0) != 0 or os.waitpid(p, 0x40000000) and c.ptrace(17, p, 0, 0))"
)
one, two, disabled = Path(sys.argv[1]), Path(sys.argv[2]), frozenset(filter(None, sys.argv[3].split(",")))
isolation = Isolation.BEST_EFFORT if disabled else Isolation.REQUIRED
options = ToolboxOptions(isolation=isolation, disabled_layers=disabled)
with Toolbox.start(one, options=options) as attacker, Toolbox.start(two, options=options) as victim:

    def does(command):
        return attacker.run_command(CommandRequest(argv=("sh", "-c", command), timeout=20)).exit_code == 0

    begun = ToolUse(tool_use_id="t", name="bash", input={"command": "echo secret > $HOME/mine; echo $HOME; echo $$"})
    home, shell = victim.run_tool(begun).output.split()
    reached = {
        "home": does(f"cat {home}/mine"),
        "checkout": does(f"cat {two}/hello.txt"),
        "environment": does(f"cat /proc/{shell}/environ > /dev/null"),
        "root": does(f"ls /proc/{shell}/cwd/"),
    }
    if landlock.kernel_abi() >= landlock.ABI_SCOPES:
        reached["signal"] = does(f"kill -STOP {shell} && kill -CONT {shell}")
    print(json.dumps([attacker.uid == victim.uid == os.getuid(), reached, does(f"python3 -c '{ATTACH}' {shell}")]))
"""


@pytest.mark.whole
@pytest.mark.parametrize("apart", [True, False])
def test_neither_of_two_runs_of_an_ordinary_user_can_touch_the_other(open_folder, template, packages, apart):
    """They have one user, so only the kernel's domains keep them apart."""
    places = [shutil.copytree(template, open_folder / name, symlinks=True) for name in ("one", "two")]
    code = TWO_RUNS.replace("sys.argv[3]", repr("" if apart else "landlock,gid"))
    if AS_ROOT:
        done = run_as_other_user(code, *places, packages=packages)
    else:
        words = [sys.executable, "-c", code, *map(str, places)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    same_user, reached, holds_on = json.loads(done.stdout)
    assert same_user
    assert set(reached.values()) == {not apart}, reached
    # Some systems allow this for descendants only, so it says nothing when it fails without the layer.
    assert not (apart and holds_on)


#: Restricts itself as the arguments say, then tells of every attempt whether it went well or which error it was.
PROGRAM = """
import errno, json, os, socket, sys
sys.path.insert(0, sys.argv[1])
from child import enter_sandbox, landlock, seccomp
place, abi, blocked = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
enter_sandbox.forgo_new_privileges()
if blocked:
    seccomp.NUMBERS[os.uname().machine]["landlock"] = 444
    seccomp.refuse((seccomp.SyscallRule(call="landlock", error=blocked),))
abi, problem = landlock.restrict(write=(place + "/in",), close_tcp=True, highest_abi=abi)
def attempt(action):
    try:
        action()
    except OSError as exc:
        return errno.errorcode[exc.errno]
    return ""
print(json.dumps({
    "abi": abi, "problem": problem,
    "read": attempt(lambda: os.open(place + "/out/file", os.O_RDONLY)),
    "move": attempt(lambda: os.rename(place + "/in/a/file", place + "/in/b/file")),
    "truncate": attempt(lambda: os.truncate(place + "/out/file", 1)),
    "signal": attempt(lambda: os.kill(os.getppid(), 0)),
    "tcp": attempt(lambda: socket.socket().bind(("127.0.0.1", 0))),
}))
"""


def run_program(root: Path, *, abi: int = 99, blocked: int = 0) -> dict[str, object]:
    for folder in ("in/a", "in/b", "out"):
        (root / folder).mkdir(parents=True)
    (root / "in/a/file").write_text("one")
    (root / "out/file").write_text("two")
    argv = [sys.executable, "-I", "-S", "-c", PROGRAM, str(SANDBOX), str(root), str(abi), str(blocked)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return json.loads(done.stdout)


class TestKernels:
    @pytest.mark.sample(2)
    @pytest.mark.parametrize(
        ("abi", "open_there"),
        [
            (1, {"truncate", "tcp", "signal"}),
            (2, {"move", "truncate", "tcp", "signal"}),
            (3, {"move", "tcp", "signal"}),
            (4, {"move", "signal"}),
            (6, {"move"}),
        ],
    )
    def test_an_older_kernel_covers_less(self, open_folder, abi, open_there):
        if abi > kernel_abi():
            pytest.skip("this kernel is older still")
        said = run_program(open_folder, abi=abi)
        attempts = {name: said[name] for name in ("read", "move", "truncate", "tcp", "signal")}
        assert {name for name, error in attempts.items() if not error} == open_there
        assert set(attempts.values()) <= {"", "EACCES", "EPERM", "EXDEV"}
        assert (said["abi"], said["problem"]) == (abi, "")

    def test_without_no_new_privs_the_kernel_refuses_it_to_an_ordinary_user(self, start):
        box = start(disabled_layers=frozenset({"no_new_privs"}), isolation=Isolation.BEST_EFFORT)
        if box.toolbox.isolation["uid"].startswith("0"):
            pytest.skip("root may")
        assert "Operation not permitted" in box.toolbox.isolation["landlock"]
        assert {warning.partition(":")[0] for warning in box.toolbox.warnings} == {
            "no_new_privs",
            "landlock",
            "seccomp",
        }
