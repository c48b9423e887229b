"""The self-test: what it asks for, what it finds when a layer is off, and that it leaves everything as it was."""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import socket
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from toolbox_world import AS_ROOT, git, readable_interpreter, root_only, run_as_other_user, stays_root

from stepflow.domain.words import Isolation, Network
from stepflow.errors import IsolationError
from stepflow.sandbox.selftest import CanaryReport, Outside, try_canaries

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "ghs_secretofthistest0123456789"
COMMAND_FILES = ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE", "GITHUB_STEP_SUMMARY")
FOLDERS = {"RUNNER_TEMP", "the run folder", "/github/workflow and the event", "/github/file_commands"}
TEMPORARY = "the parent's temporary files"
PROBE = Path(sys.modules["stepflow.sandbox"].__file__).parent / "child" / "probe.py"


@pytest.fixture
def outside(open_folder):
    """Folders as a runner mounts them: every user may enter and write."""
    names = ("temp", "workflow", "commands", "run", "home", "sockets")
    for name in names:
        (open_folder / name).mkdir()
        (open_folder / name).chmod(0o777)
    for name in ("temp", "run", "workflow"):
        (open_folder / name / "held").write_text("held")
        (open_folder / name / "held").chmod(0o666)
    environment = {"RUNNER_TEMP": str(open_folder / "temp"), "HOME": str(open_folder / "home")}
    for name in COMMAND_FILES:
        file = open_folder / "commands" / name.lower()
        file.touch()
        file.chmod(0o666)
        environment[name] = str(file)
    event = open_folder / "workflow" / "event.json"
    event.write_text("{}")
    return Outside(
        environment={**environment, "GITHUB_EVENT_PATH": str(event)},
        run_folder=open_folder / "run",
        secrets=(SECRET,),
        socket_folders=(str(open_folder / "sockets"),),
        docker=(str(open_folder / "sockets" / "docker.sock"),),
    )


@pytest.fixture
def own_user(monkeypatch):
    """The tools get a user of their own with `best-effort` too, which needs an interpreter that every user may run."""
    python = readable_interpreter()
    if not AS_ROOT or not python:
        pytest.skip("needs a root parent, and a Python that other users can run")
    monkeypatch.setattr(sys, "executable", python)


@pytest.fixture
def without_landlock(own_user, start):
    return start(isolation=Isolation.BEST_EFFORT, disabled_layers=frozenset({"landlock"}))


def listening(path: Path, mode: int = 0o666, group: int = -1) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    server.listen(8)
    path.chmod(mode)
    os.chown(path, -1, group)
    return server


def reached(report: CanaryReport) -> dict[str, str]:
    return {canary.location.value.name: canary.ways for canary in report.reached}


PROTOCOLS = {
    "tcp": (socket.AF_INET, socket.SOCK_STREAM),
    "tcp6": (socket.AF_INET6, socket.SOCK_STREAM),
    "udp": (socket.AF_INET, socket.SOCK_DGRAM),
    "unix": (socket.AF_UNIX, socket.SOCK_STREAM),
}


def own_listeners() -> Iterator[tuple[str, str, object]]:
    """What names each socket on which this process listens, its protocol and its address."""
    ours = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            ours.add(str(entry.readlink()))
    for protocol in PROTOCOLS:
        for line in Path(f"/proc/self/net/{protocol}").read_text().splitlines()[1:]:
            words = line.split()
            if protocol == "unix":
                if f"socket:[{words[6]}]" in ours and words[-1].startswith("@"):
                    yield words[6], protocol, "\0" + words[-1][1:]
            elif f"socket:[{words[9]}]" in ours and words[2].endswith(":0000"):
                host = "::1" if protocol == "tcp6" else "127.0.0.1"
                yield words[9], protocol, (host, int(words[1].partition(":")[2], 16))


@contextlib.contextmanager
def stranger() -> Iterator[set[str]]:
    """Calls at whatever this process listens on while the block lasts; gives by which protocols it could."""
    called, done, over = set[str](), set[str](), threading.Event()

    def call() -> None:
        while not over.wait(0.001):
            for name, protocol, address in own_listeners():
                if name not in done:
                    done.add(name)
                    with contextlib.suppress(OSError), socket.socket(*PROTOCOLS[protocol]) as end:
                        end.connect(address)
                        end.send(b"hello from a stranger")
                        called.add(protocol)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield called
    finally:
        over.set()
        thread.join()


def everything_below(folder: Path) -> dict[str, tuple[object, ...]]:
    """Names, owners, modes, times and contents; of a folder not the times, which every new file changes."""
    states = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        info = path.lstat()
        held = () if path.is_dir() else (info.st_mtime_ns, info.st_ctime_ns, path.read_bytes())
        states[str(path)] = (info.st_uid, info.st_gid, info.st_mode, *held)
    return states


class TestWhatIsFound:
    def test_without_landlock_the_runners_folders_and_files_are_open(self, without_landlock, outside):
        report = try_canaries(without_landlock.toolbox, outside)
        assert reached(report).keys() == {*FOLDERS, "the parent's home", TEMPORARY, "abstract sockets"}
        for location in FOLDERS:
            assert "(list, make, read, append)" in reached(report)[location]
            assert reached(report)[location].startswith("by shell: ")
        assert f"{outside.environment['GITHUB_ENV']} (read, append)" in reached(report)["/github/file_commands"]
        assert f"{outside.environment['GITHUB_EVENT_PATH']} (read" in reached(report)["/github/workflow and the event"]
        report.demand(Isolation.BEST_EFFORT)
        assert any(line.startswith("open: RUNNER_TEMP, reached by shell: ") for line in report.open)
        with pytest.raises(IsolationError, match=r"nothing else runs in it\. RUNNER_TEMP, reached by shell.*landlock"):
            report.demand(Isolation.REQUIRED)

    def test_a_place_that_the_parent_may_not_look_into_is_tried(self, monkeypatch, box, outside, open_folder):
        closed, look = open_folder / "closed" / "folder", Path.stat

        def may_not(path: Path, **options: bool) -> os.stat_result:
            if path == closed:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return look(path, **options)

        monkeypatch.setattr(Path, "stat", may_not)
        states = try_canaries(box.toolbox, replace(outside, run_folder=closed)).states
        assert (states["the run folder"], states["/github/home"]) == ("kept", "not here")

    @pytest.mark.whole
    def test_files_in_the_checkout_are_tried_and_none_is_made(self, without_landlock, outside, open_folder):
        source = open_folder / "source"
        (source / ".git").mkdir(parents=True)
        (source / ".git/HEAD").write_text("ref: refs/heads/main\n")
        (source / "greeting.txt").write_text("hello\n")
        for path in (source, source / ".git"):
            path.chmod(0o777)
        changed = source.stat().st_ctime_ns
        report = try_canaries(without_landlock.toolbox, replace(outside, checkout=source))
        assert reached(report)["the checkout"] == (f"by shell: {source} (list, read), {source}/.git (read)")
        assert source.stat().st_ctime_ns == changed

    def test_a_secret_in_the_environment_is_found_in_every_form_and_refuses_always(self, start, outside):
        encoded = base64.b64encode(b"x-access-token:" + SECRET.encode()).decode()
        box = start(isolation=Isolation.BEST_EFFORT, pass_env={"HEADER": encoded, "PLAIN": "nothing"})
        report = try_canaries(box.toolbox, outside)
        assert reached(report)["a tool's environment"] == "by shell: HEADER (set)"
        with pytest.raises(IsolationError, match="a tool's environment, reached") as caught:
            report.demand(Isolation.BEST_EFFORT)
        assert "best-effort` too" in caught.value.hint
        assert SECRET not in str(caught.value)
        assert encoded not in str(caught.value)

    @pytest.mark.whole
    @pytest.mark.parametrize("included", [False, True])
    def test_a_credential_in_gits_configuration_is_found_and_refuses_always(self, start, checkout, outside, included):
        header = f"AUTHORIZATION: basic {base64.b64encode(f'x-access-token:{SECRET}'.encode()).decode()}"
        setting = ("http.https://github.com/.extraheader", header)
        if included:
            file = checkout / "credentials.config"
            git(checkout, "config", "--file", str(file), *setting)
            git(checkout, "config", f"includeIf.gitdir:{checkout}/.git.path", str(file))
        else:
            git(checkout, "config", *setting)
        report = try_canaries(start(isolation=Isolation.BEST_EFFORT).toolbox, outside)
        ways = reached(report)["git's configuration"]
        assert "git config --list (git-config)" in ways
        assert (".git/config (bytes)" in ways) is not included
        with pytest.raises(IsolationError, match="git's configuration, reached"):
            report.demand(Isolation.BEST_EFFORT)

    @pytest.mark.whole
    @root_only
    def test_a_docker_socket_for_everybody_refuses_always_and_another_one_warns(
        self, without_landlock, outside, open_folder
    ):
        folder = open_folder / "sockets"
        with listening(folder / "docker.sock"), listening(folder / "dbus.sock"), listening(folder / "x.sock", 0o600):
            report = try_canaries(without_landlock.toolbox, outside)
        assert reached(report)["the docker socket"] == f"by shell: {folder}/docker.sock (connect)"
        assert reached(report)["other sockets under /run"] == f"by shell: {folder}/dbus.sock (connect)"
        with pytest.raises(IsolationError, match="the docker socket, reached") as caught:
            report.demand(Isolation.BEST_EFFORT)
        assert "dbus" not in str(caught.value)

    @pytest.mark.whole
    @pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
    def test_sockets_of_every_type_are_tried(self, without_landlock, outside, open_folder, kind):
        with socket.socket(socket.AF_UNIX, kind) as server:
            path = open_folder / "sockets" / "log.sock"
            server.bind(str(path))
            path.chmod(0o666)
            if kind == socket.SOCK_SEQPACKET:
                server.listen(1)
            assert "other sockets under /run" in reached(try_canaries(without_landlock.toolbox, outside))

    def test_without_user_and_landlock_everything_of_the_parent_is_open(self, own_user, start, outside):
        box = start(isolation=Isolation.BEST_EFFORT, disabled_layers=frozenset({"uid", "landlock"}))
        report = try_canaries(box.toolbox, outside)
        assert reached(report)["the parent's memory"] == "by shell: the parent (peek, trace)"
        assert {"the parent in /proc", "signals to the parent", TEMPORARY} <= reached(report).keys()
        with pytest.raises(IsolationError, match=r"the parent in /proc, .*; the parent's memory, "):
            report.demand(Isolation.BEST_EFFORT)

    @pytest.mark.whole
    def test_without_an_environment_of_its_own_the_parents_variables_are_seen(
        self, monkeypatch, own_user, start, outside
    ):
        monkeypatch.setenv("ACTIONS_RUNTIME_TOKEN", "x")
        monkeypatch.setenv("SOME_NAME", SECRET)
        box = start(isolation=Isolation.BEST_EFFORT, disabled_layers=frozenset({"environment"}))
        ways = reached(try_canaries(box.toolbox, outside))["a tool's environment"]
        assert "ACTIONS_RUNTIME_TOKEN (set)" in ways
        assert "SOME_NAME (set)" in ways

    @pytest.mark.whole
    @pytest.mark.parametrize("disabled", [frozenset(), frozenset({"network"})], ids=["closed", "without the layer"])
    def test_a_closed_network_is_tried_on_listeners_of_the_parent(self, own_user, start, outside, disabled):
        box = start(isolation=Isolation.BEST_EFFORT, network=Network.NONE, disabled_layers=disabled)
        states = try_canaries(box.toolbox, outside).states
        tried = {states[location] for location in ("TCP", "TCP over IPv6", "UDP")}
        reached = {f"reached by shell: {attempt}" for attempt in ("127.0.0.1 (tcp)", "127.0.0.1 (udp)", "::1 (tcp)")}
        assert tried == (reached if disabled else {"kept"})

    @pytest.mark.skipif(sys.platform != "linux", reason="reads what listens from /proc")
    def test_strangers_who_call_at_the_listeners_are_not_the_tools(self, start, outside):
        with stranger() as called:
            states = try_canaries(start(network=Network.NONE).toolbox, outside).states
        assert called == {*PROTOCOLS}
        assert {states[location] for location in ("TCP", "TCP over IPv6", "UDP", "abstract sockets")} == {"kept"}

    @root_only
    def test_tools_that_stay_root_are_held_by_the_layers_that_this_takes(self, start, checkout, outside):
        box = start(**stays_root(checkout))
        assert reached(try_canaries(box.toolbox, outside)) == {}

    def test_with_every_layer_nothing_is_reached(self, start, outside):
        report = try_canaries(start().toolbox, outside)
        assert reached(report) == {}
        report.demand(Isolation.REQUIRED)
        unreachable = {location for location, state in report.states.items() if state == "kept"}
        assert unreachable >= {
            *FOLDERS,
            "the parent in /proc",
            "the parent's memory",
            "abstract sockets",
            "the parent's home",
            TEMPORARY,
        }


SAME_USER = """
import json, sys
from pathlib import Path
from stepflow.domain.words import Isolation
from stepflow.errors import IsolationError
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.isolation import ToolboxOptions
from stepflow.sandbox.selftest import Outside, try_canaries
options = ToolboxOptions(isolation=Isolation.BEST_EFFORT, disabled_layers=frozenset({"landlock"}))
with Toolbox.start(Path(sys.argv[1]), options=options) as box:
    report = try_canaries(box, Outside(environment={"HOME": "/nowhere"}, socket_folders=()))
try:
    report.demand(Isolation.BEST_EFFORT)
except IsolationError as error:
    print(json.dumps([dict(report.states), error.message]))
"""


@pytest.mark.whole
@root_only
def test_a_parent_whose_memory_its_own_user_may_read_is_refused_always(checkout, packages):
    done = run_as_other_user(SAME_USER, checkout, packages=packages)
    assert done.returncode == 0, done.stderr
    states, message = json.loads(done.stdout)
    assert states["the parent in /proc"].startswith("reached by shell: environ (read), ")
    assert states["the parent's memory"] == "reached by shell: the parent (peek, trace)"
    assert states["signals to the parent"] == "reached by shell: the parent (signal)"
    assert states["process 1 in /proc"] == "kept"
    assert "the parent in /proc, reached" in message
    assert "signals" not in message


class TestWhatItLeavesBehind:
    def test_everything_is_as_before_where_a_tool_reached_it(self, monkeypatch, without_landlock, outside, open_folder):
        monkeypatch.setattr(tempfile, "tempdir", str(open_folder))
        before = everything_below(open_folder)
        report = try_canaries(without_landlock.toolbox, outside)
        assert reached(report).keys() >= {*FOLDERS, "the parent's home", TEMPORARY}
        assert everything_below(open_folder) == before

    def test_nothing_is_made_anywhere_not_even_for_a_moment(self, start, outside, open_folder):
        box = start()
        folders = [open_folder, *(Path(name) for name in (outside.environment["HOME"], outside.run_folder))]
        folders += [folder for folder in open_folder.iterdir() if folder.is_dir()]
        changed = {folder: folder.stat().st_ctime_ns for folder in folders}
        assert reached(try_canaries(box.toolbox, outside)) == {}
        assert {folder: folder.stat().st_ctime_ns for folder in folders} == changed


def test_it_fits_into_the_smallest_pipe(monkeypatch, start, outside):
    """The kernel gives small ones to a user who has very many."""
    monkeypatch.setattr("stepflow.sandbox.commands._WANTED_PIPE", 8192)
    assert reached(try_canaries(start().toolbox, outside)) == {}


def test_a_probe_that_cannot_be_run_refuses(monkeypatch, start, outside):
    box = start(isolation=Isolation.BEST_EFFORT)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(IsolationError, match="self-test of the sandbox could not be run"):
        try_canaries(box.toolbox, outside)
