"""Plays the parent inside the image: plants canaries, starts the toolbox with one layer off in turn, attacks."""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

from attacks import ATTACKS, OPEN_SOCKET, Attack

from stepflow.domain.checkout import CommandRequest
from stepflow.domain.conversation import ToolUse
from stepflow.domain.words import Isolation, Network
from stepflow.errors import IsolationError
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.environment import close_process
from stepflow.sandbox.isolation import ProcessLimits, ToolboxOptions
from stepflow.sandbox.workspace import make_workspace, remove_folder

CHECKOUT = Path("/github/workspace")
WORKSPACE = Path("/tmp/attacked/checkout")
OTHER_RUN = Path("/tmp/other-run")
COMMAND_FILES = Path("/github/file_commands")
CANARIES = (
    *("memory", "held", "home", "neighbor", "root", "group", "network"),
    *("group_socket", "open_socket", "abstract"),
)
_SAID = 300
_SET_DUMPABLE = 4  # linux/prctl.h


class Surroundings:
    """What is planted around the tools, and looks at what became of it. `facts` fill the attacks' commands."""

    def __init__(self, owner: tuple[int, int]) -> None:
        self.owner = owner
        self.facts: dict[str, object] = {name: f"canary-{name}-{secrets.token_hex(6)}" for name in CANARIES}
        self.facts["parent"] = os.getpid()
        # These were planted by whoever started the container.
        self.facts |= {name: os.environ[f"CANARY_{name.upper()}"] for name in ("environment", "event", "credential")}
        self.signals = 0
        self._listening: list[socket.socket] = []
        self._plant_files()
        self._plant_sockets()
        signal.signal(signal.SIGUSR1, self._take_note)

    def _canary(self, name: str) -> str:
        return str(self.facts[name])

    def _plant_files(self) -> None:
        Path("/github/home/.netrc").write_text(self._canary("home"))
        for name, mode, group in (("only-root", 0o600, 0), ("only-group", 0o640, self.owner[1])):
            path = Path("/etc", name)
            path.write_text(self._canary(name.removeprefix("only-")))
            os.chown(path, 0, group)
            path.chmod(mode)
        program = shutil.copy("/usr/bin/cat", "/usr/local/bin/read-as-root")
        Path(program).chmod(0o4755)
        self._held = tempfile.TemporaryFile()  # noqa: SIM115 - held open until the end is its purpose
        self._held.write(self._canary("held").encode())
        self._held.flush()

    def _plant_sockets(self) -> None:
        for path, canary, mode in (("group", "group_socket", 0o660), ("open", "open_socket", 0o666)):
            self._listen(socket.AF_UNIX, f"/run/{path}.sock", self._canary(canary))
            os.chown(f"/run/{path}.sock", 0, self.owner[1])
            Path(f"/run/{path}.sock").chmod(mode)
        # The machine has one space of abstract names, and several of these may be at work.
        self.facts["abstract_name"] = f"stepflow-{secrets.token_hex(6)}"
        self._listen(socket.AF_UNIX, f"\0{self.facts['abstract_name']}", self._canary("abstract"))
        self._listen(socket.AF_INET, ("127.0.0.1", 0), self._canary("network"), fact="tcp")
        self._listen(socket.AF_INET6, ("::1", 0), self._canary("network"), fact="tcp6")
        self._answer_datagrams(socket.AF_INET, "127.0.0.1", fact="udp")
        self._answer_datagrams(socket.AF_INET6, "::1", fact="udp6")
        self.facts |= {"listen": 0, "netlink": 0}

    def _listen(self, address_family: int, address: object, answer: str, *, fact: str = "") -> None:
        server = socket.socket(address_family)
        server.bind(address)
        server.listen()
        if fact:
            self.facts[fact] = server.getsockname()[1]

        def serve() -> None:
            while True:
                # A client that is gone before it is answered must not end the service for the others.
                with suppress(OSError), server.accept()[0] as client:
                    client.settimeout(0.1)
                    with suppress(TimeoutError):
                        client.recv(1024)
                    client.sendall(answer.encode())

        threading.Thread(target=serve, daemon=True).start()

    def _answer_datagrams(self, address_family: int, host: str, *, fact: str) -> None:
        server = socket.socket(address_family, socket.SOCK_DGRAM)
        server.bind((host, 0))
        self.facts[fact] = server.getsockname()[1]

        def serve() -> None:
            while True:
                server.sendto(self._canary("network").encode(), server.recvfrom(100)[1])

        threading.Thread(target=serve, daemon=True).start()

    def _take_note(self, _number: int, _frame: object) -> None:
        self.signals += 1

    def renew(self, box: Toolbox) -> None:
        """Plant again what an attack may have changed, and what belongs to the tools' user."""
        uid, gid, launcher = (int(_call(box, command)) for command in ("id -u", "id -g", "echo $PPID"))
        self.signals = 0
        self.box = box
        shutil.rmtree(OTHER_RUN, ignore_errors=True)
        OTHER_RUN.mkdir(mode=0o700)
        (OTHER_RUN / "note").write_text("of another run")
        for path in (OTHER_RUN, OTHER_RUN / "note"):
            os.chown(path, uid, self.owner[1])
        for path in COMMAND_FILES.iterdir():
            path.write_text("")
        self.other = subprocess.Popen(
            ["/usr/bin/sleep", "600"], env={"NEIGHBOR": self._canary("neighbor")}, user=uid, group=gid
        )
        self.facts |= {"other": self.other.pid, "launcher": launcher}

    def clear(self) -> None:
        """End what belongs to one toolbox."""
        self.other.kill()
        self.other.wait()

    def command_files_changed(self) -> bool:
        return any(path.read_text() for path in COMMAND_FILES.iterdir())

    def parent_was_signaled(self) -> bool:
        return self.signals > 0

    def planted_program_was_run(self) -> bool:
        results = [
            self.box.run_command(CommandRequest(argv=(name, "--version"), timeout=5)) for name in ("git", "true")
        ]
        return any("planted program was run" in result.stdout for result in results)

    def daemon_goes_on(self) -> bool:
        self.box.end_step()
        edited = WORKSPACE / "edited-by-the-daemon"
        before = edited.stat().st_size
        time.sleep(0.2)
        grown = edited.stat().st_size > before
        # Without its file the daemon ends by itself.
        edited.unlink()
        return grown

    def other_process_is_gone(self) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self.other.wait(0.2)
        return self.other.poll() is not None

    def launcher_is_gone(self) -> bool:
        try:
            status = Path(f"/proc/{self.facts['launcher']}/stat").read_text()
        except OSError:
            return True
        return status.rpartition(") ")[2][:1] in {"Z", "X"}

    def toolbox_is_gone(self) -> bool:
        try:
            _call(self.box, "true")
        except IsolationError:
            return True
        return False

    def other_run_changed(self) -> bool:
        return (OTHER_RUN / "note").read_text() != "of another run"


@dataclass(frozen=True)
class Configuration:
    """Which layers are off, whether the network is to be closed, and whether the parent closes itself first."""

    disabled: tuple[str, ...] = ()
    network: str = "none"
    closed_parent: bool = False

    def start(self) -> Toolbox:
        """A toolbox with limits that an attack comes up against quickly.

        Processes of the same user outside the container count too, and are not seen from here: hence so many.
        """
        if self.closed_parent:
            close_process()
        else:
            ctypes.CDLL(None).prctl(_SET_DUMPABLE, 1, 0, 0, 0)
        options = ToolboxOptions(
            isolation=Isolation.BEST_EFFORT if self.disabled else Isolation.REQUIRED,
            network=Network(self.network),
            limits=ProcessLimits(processes=1000, file_bytes=64 << 20),
            disabled_layers=frozenset(self.disabled),
        )
        remove_folder(WORKSPACE)
        WORKSPACE.parent.mkdir(mode=0o711, exist_ok=True)
        make_workspace(CHECKOUT, WORKSPACE)
        return Toolbox.start(WORKSPACE, options=options)


def main() -> None:
    """Print the matrix."""
    order = json.loads(sys.argv[1])
    os.environ["PATH"] = f"{WORKSPACE}/node_modules/.bin:{os.environ['PATH']}"
    info = CHECKOUT.stat()
    around = Surroundings((info.st_uid, info.st_gid))
    memory = bytearray(str(around.facts["memory"]).encode())
    matrix = {name: _try_all(around, Configuration(**given)) for name, given in order.items()}
    print(json.dumps({"matrix": matrix, "alive": len(memory) > 0}))


def _try_all(around: Surroundings, configuration: Configuration) -> dict[str, object]:
    box = configuration.start()
    results: dict[str, object] = {}
    try:
        layers, warnings = dict(box.isolation), box.warnings
        around.renew(box)
        for attack in (*ATTACKS, OPEN_SOCKET):
            results[attack.name] = result = _try(around, box, attack)
            # A call for each would double the time.
            suspicious = attack.then or "the toolbox: " in str(result["said"]) or around.launcher_is_gone()
            if (suspicious and around.toolbox_is_gone()) or around.other.poll() is not None:
                around.clear()
                box.close()
                box = configuration.start()
                around.renew(box)
    finally:
        around.clear()
        box.close()
    return {"layers": layers, "warnings": warnings, "attacks": results}


def _try(around: Surroundings, box: Toolbox, attack: Attack) -> dict[str, object]:
    command = attack.command.format(**around.facts)
    try:
        said = _call(box, command)
        if attack.then:
            tool, inputs = attack.then
            said = box.run_tool(ToolUse(tool_use_id="attack", name=tool, input=dict(inputs))).output
    except IsolationError as exc:
        said = f"the toolbox: {exc.message}"
    look: Callable[[], bool] = getattr(around, attack.seen) if attack.seen else lambda: False
    succeeded = look() if attack.seen else attack.says.format(**around.facts) in said
    return {"succeeded": succeeded, "said": said[-_SAID:]}


def _call(box: Toolbox, command: str, timeout: float = 15) -> str:
    use = ToolUse(tool_use_id="attack", name="bash", input={"command": command, "timeout_ms": int(timeout * 1000)})
    return box.run_tool(use).output


if __name__ == "__main__":
    main()
