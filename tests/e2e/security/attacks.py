"""What hostile tools try in the container, and which layers stop it.

The driver, the tests and the documentation read the same list.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

#: The parent's own: it makes itself undumpable before anything else is started.
CLOSED_PARENT = "closed parent"
#: What the kernel grants only to a process that has given up new privileges, and what is therefore lost with it.
NEEDS_NO_NEW_PRIVS = frozenset({"landlock", "seccomp", "network"})


@dataclass(frozen=True, kw_only=True)
class Attack:
    """`command` is given to the tool bash, and `then` to another tool; words in braces are filled in by the driver.

    It succeeded when `says` is in the last answer, or when the driver's look named `seen` says so.

    `stopped_by` names what stops it, each by itself; a name such as `uid+gid` is a barrier that takes both layers.
    `perhaps` are layers that it takes as well on some machines. Not `everywhere`: some kernels do not know what it
    asks for.
    """

    name: str
    case: int
    command: str = "true"
    then: tuple[str, Mapping[str, str]] | None = None
    says: str = ""
    seen: str = ""
    stopped_by: tuple[str, ...] = ()
    perhaps: tuple[str, ...] = ()
    everywhere: bool = True

    def comes_through(self, off: Collection[str]) -> bool:
        """Whether it must succeed when these layers are off."""
        gone = {*off, *(NEEDS_NO_NEW_PRIVS if "no_new_privs" in off else ())}
        return all(gone & set(barrier.split("+")) for barrier in self.stopped_by)


def _attack(name: str, case: int, words: str, **more: object) -> Attack:
    program, _, arguments = words.partition(" ")
    shell = "bash" if program.endswith(".sh") else "python3"
    return Attack(name=name, case=case, command=f"{shell} /opt/exploits/{program} {arguments}".strip(), **more)


def _file_tool(name: str, tool: str, inputs: Mapping[str, str], *, after: str = "true", **more: object) -> Attack:
    return Attack(name=name, case=11, command=after, then=(tool, inputs), stopped_by=("the file tools",), **more)


_FILES = (
    _attack("print the environment", 1, "environment.sh", says="{environment}", stopped_by=("environment",)),
    _attack(
        "have git read the credential that the checkout's configuration includes",
        2,
        "git_configuration.sh",
        says="{credential}",
        stopped_by=("landlock",),
    ),
    _attack(
        "read the file with checkout's credential",
        3,
        "read_files.sh /github/runner_temp/git-credentials-*",
        says="{credential}",
        stopped_by=("landlock",),
    ),
    _attack(
        "read the event's payload",
        3,
        "read_files.sh /github/workflow/event.json",
        says="{event}",
        stopped_by=("landlock",),
    ),
    _attack("search the runner's home", 3, "search_files.sh /github/home", says="{home}", stopped_by=("landlock",)),
    _attack(
        "write into the runner's command files",
        4,
        "append_files.sh",
        seen="command_files_changed",
        stopped_by=("landlock", "uid"),
    ),
    _attack(
        "read a file that only root may read", 7, "read_files.sh /etc/only-root", says="{root}", stopped_by=("uid",)
    ),
    _attack(
        "read a file of the runner's group",
        8,
        "read_files.sh /etc/only-group",
        says="{group}",
        stopped_by=("uid+gid",),
    ),
    _attack("run a program that sets its user", 7, "setuid.sh", says="{root}", stopped_by=("uid+no_new_privs",)),
    _file_tool(
        "read through a link that leaves the checkout",
        "read",
        {"file_path": "link-to-file"},
        after="ln -sf /etc/only-root link-to-file",
        says="{root}",
    ),
    _file_tool(
        "search through a link that leaves the checkout",
        "grep",
        {"pattern": "canary", "path": "link-to-folder"},
        after="ln -sfn /etc link-to-folder",
        says="{root}",
    ),
    _file_tool("read a path outside", "read", {"file_path": "../workflow/event.json"}, says="{event}"),
    _file_tool("read an absolute path outside", "read", {"file_path": "/etc/only-root"}, says="{root}"),
    _file_tool(
        "write through a link that leaves the checkout",
        "write",
        {"file_path": "link-to-run/note", "content": "hijacked"},
        after="ln -sfn /tmp/other-run link-to-run",
        seen="other_run_changed",
    ),
    _file_tool(
        "have the reader wait for a FIFO",
        "read",
        {"file_path": "pipe"},
        after="rm -f pipe; mkfifo pipe",
        seen="toolbox_is_gone",
    ),
)

_PROCESSES = (
    _attack(
        "read the parent's environment",
        7,
        "processes.sh {parent} 1",
        says="{environment}",
        stopped_by=("uid", "landlock", CLOSED_PARENT),
    ),
    _attack(
        "read the parent's memory",
        7,
        "memory.py {parent}",
        says="{memory}",
        stopped_by=("uid", "landlock", CLOSED_PARENT),
    ),
    _attack(
        "read a file that the parent holds open",
        7,
        "processes.sh {parent}",
        says="{held}",
        stopped_by=("uid", "landlock", CLOSED_PARENT),
    ),
    _attack(
        "take hold of the parent with ptrace",
        7,
        "ptrace.py {parent}",
        says="held the process",
        stopped_by=("uid", "landlock", CLOSED_PARENT),
    ),
    _attack(
        "send the parent a signal",
        7,
        "signals.sh USR1 {parent}",
        seen="parent_was_signaled",
        stopped_by=("uid", "landlock"),
    ),
    _attack(
        "read the environment of another process of the same user",
        7,
        "processes.sh {other}",
        says="{neighbor}",
        stopped_by=("landlock",),
    ),
    _attack(
        "end every process of the same user",
        26,
        "signals.sh KILL -1",
        seen="other_process_is_gone",
        stopped_by=("landlock",),
    ),
    _attack("read the launcher's memory", 7, "memory.py {launcher}", says="opened the memory", stopped_by=("memory",)),
    _attack("leave a daemon that edits later", 26, "daemon.sh", seen="daemon_goes_on", stopped_by=("life",)),
    _attack(
        "have a planted program run by name",
        15,
        "planted_program.sh",
        seen="planted_program_was_run",
        stopped_by=("path",),
    ),
    _attack(
        "start processes without end", 27, "fork_bomb.py 1500", says="1500 processes were", stopped_by=("uid+limits",)
    ),
    _attack(
        "be ended no sooner than the parent when memory runs out",
        36,
        "oom_score.py {parent}",
        says="ended no sooner than the parent",
        stopped_by=("limits+landlock",),
    ),
    *(
        _attack(
            f"demote the launcher: {how}",
            36,
            f"demote.py {{launcher}} '{how}'",
            says="the process was demoted",
            stopped_by=("seccomp",),
        )
        for how in (
            *("scheduler", "parameters", "attributes", "affinity", "disk", "limits"),
            *("niceness", "niceness of its group", "niceness of its user"),
        )
    ),
    *(
        _attack(
            f"demote the parent: {how}",
            36,
            f"demote.py {{parent}} '{how}'",
            says="the process was demoted",
            stopped_by=("seccomp", "uid"),
        )
        for how in ("scheduler", "affinity", "niceness", "disk", "limits")
    ),
    *(
        _attack(
            f"leave memory behind that no process holds: {kind}",
            36,
            f"lasting_memory.py '{kind}'",
            says="it was left behind",
            stopped_by=("seccomp",),
        )
        for kind in ("segment", "huge segment", "semaphores", "queue")
    ),
    _attack("write a file of ten gigabytes", 27, "large_file.sh", says="10737418240 bytes", stopped_by=("limits",)),
    _attack(
        "change a file of another run of the same user",
        26,
        "write_outside.sh /tmp/other-run/note",
        seen="other_run_changed",
        stopped_by=("landlock",),
    ),
)

_SOCKETS = (
    _attack(
        "reach the engine's socket",
        8,
        "sockets.py /var/run/docker.sock",
        says="HTTP/1.0 200",
        stopped_by=("uid",),
        perhaps=("gid",),
    ),
    _attack(
        "reach a socket of the runner's group",
        8,
        "sockets.py /run/group.sock",
        says="{group_socket}",
        stopped_by=("uid+gid",),
    ),
    _attack(
        "reach any closed socket that can be found", 8, "sockets.py", says="{group_socket}", stopped_by=("uid+gid",)
    ),
    _attack("reach an abstract socket", 8, "sockets.py @{abstract_name}", says="{abstract}", stopped_by=("landlock",)),
    *(
        _attack(f"use the network: {kind}", 1, f"network.py {kind} {{{kind}}}", says=says, stopped_by=("network",))
        for kind, says in (
            ("tcp", "{network}"),
            ("tcp6", "{network}"),
            ("udp", "{network}"),
            ("udp6", "{network}"),
            ("listen", "a port was opened"),
            ("netlink", "a socket was made"),
        )
    ),
    *(
        _attack(
            f"use the network: {kind}", 1, f"network.py {kind}", says="a socket was made", stopped_by=("uid", "network")
        )
        for kind in ("raw", "packet")
    ),
    *(
        _attack(name, case, script, says=says, stopped_by=("seccomp", "network"), everywhere=False)
        for name, case, script, says in (
            ("use the network: vsock", 1, "network.py vsock", "a socket was made"),
            ("ask for a ring of io_uring", 8, "io_uring.py", "a ring was made"),
        )
    ),
    _attack("leave a key in the user's key ring", 7, "key_ring.py", says="a key was left", stopped_by=("seccomp",)),
    _attack(
        "open a user namespace",
        7,
        "namespace.sh",
        says="a namespace was opened",
        stopped_by=("seccomp",),
        everywhere=False,
    ),
)

_ATTRIBUTES = (
    *(
        _attack(
            f"leave an access control list on the workspace: {kind}",
            35,
            f"attributes.py {kind} . .git",
            says="an attribute was set",
            stopped_by=("seccomp",),
        )
        for kind in ("access", "default")
    ),
    *(
        _attack(
            f"leave an {kind} on a file of the runner",
            35,
            f"attributes.py '{kind}' /github/workflow/event.json",
            says="an attribute was set",
            stopped_by=("seccomp", "uid"),
        )
        for kind in ("attribute", "attribute of a link")
    ),
    _attack(
        "leave an attribute on a file by its descriptor",
        35,
        "attributes.py 'attribute by descriptor' README.md",
        says="an attribute was set",
        stopped_by=("seccomp",),
    ),
    _attack(
        "leave an attribute on a file by the call of newer kernels",
        35,
        "attributes.py 'new call' README.md",
        says="an attribute was set",
        stopped_by=("seccomp",),
        everywhere=False,
    ),
)

ATTACKS = (*_FILES, *_PROCESSES, *_SOCKETS, *_ATTRIBUTES)
#: What no layer stops: the socket's own mode lets everybody in. A run that finds one is refused before it begins.
OPEN_SOCKET = _attack("reach a socket that everybody may use", 8, "sockets.py /run/open.sock", says="{open_socket}")
