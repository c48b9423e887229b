"""System call filters: close kernel doors that no tool needs and that lead around the other layers."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# No library: this side is started with -I -S and sees the standard library alone. Numbers of calls and machines stand
# in asm/unistd_64.h, asm-generic/unistd.h, linux/audit.h and linux/elf-em.h of linux-libc-dev 6.12, those of the calls
# that came with Linux 6.13 (setxattrat, removexattrat) in its include/uapi/asm-generic/unistd.h, the filter language in
# linux/bpf_common.h and linux/seccomp.h, address families in glibc's bits/socket.h, PRIO_USER in linux/resource.h and
# IOPRIO_WHO_USER in linux/ioprio.h; MSG_FASTOPEN in linux/socket.h.
_SET_SECCOMP = 22
_MODE_FILTER = 2
#: The call `seccomp` itself: it can do what prctl cannot, which is to give a listener.
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE_RECV = 1, 1 << 3, 1 << 5
_ALLOW, _ERROR, _NOTIFY = 0x7FFF0000, 0x00050000, 0x7FC00000
_LOAD_WORD, _EQUAL, _AT_LEAST, _HAS_BIT, _MASK, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
#: struct seccomp_data: where the call's number, the machine and the low word of the first argument stand.
_CALL, _MACHINE, _FIRST_ARGUMENT, _SIZE_OF_ARGUMENT, _HIGH_WORD = 0, 4, 16, 8, 4
#: Calls of the x32 convention, which the kernel takes from any x86_64 process, carry this bit.
_X32_BIT = 0x40000000

_CLONE_NEWUSER = 0x10000000
_AF_UNIX, _AF_ALG, _AF_VSOCK = 1, 38, 40
#: Types of sockets, and what of socket's second argument is no flag: SOCK_NONBLOCK and SOCK_CLOEXEC are higher bits.
_SOCK_STREAM, _SOCK_SEQPACKET, _TYPE_BITS = 1, 5, 0xF
_MSG_FASTOPEN = 0x20000000
#: The sizes of sockaddr_in and sockaddr_in6.
_INTERNET_ADDRESSES = (16, 28)
_PRIO_USER, _IOPRIO_WHO_USER = 2, 3
#: Set in every size of at least one page.
_PAGE_OR_MORE = 0xFFFFF000

NUMBERS = {
    "x86_64": {
        **{"socket": 41, "socketpair": 53, "clone": 56, "unshare": 272, "clone3": 435},
        **{"connect": 42, "listen": 50, "sendto": 44, "sendmsg": 46, "sendmmsg": 307},
        **{"add_key": 248, "request_key": 249, "keyctl": 250},
        **{"perf_event_open": 298, "bpf": 321, "userfaultfd": 323},
        **{"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427},
        **{"setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "setxattrat": 463},
        **{"removexattr": 197, "lremovexattr": 198, "fremovexattr": 199, "removexattrat": 466},
        **{"shmget": 29, "semget": 64, "msgget": 68},
        **{"setpriority": 141, "ioprio_set": 251, "prlimit64": 302},
        **{"sched_setparam": 142, "sched_setscheduler": 144, "sched_setaffinity": 203, "sched_setattr": 314},
    },
    "aarch64": {
        **{"socket": 198, "socketpair": 199, "clone": 220, "unshare": 97, "clone3": 435},
        **{"connect": 203, "listen": 201, "sendto": 206, "sendmsg": 211, "sendmmsg": 269},
        **{"add_key": 217, "request_key": 218, "keyctl": 219},
        **{"perf_event_open": 241, "bpf": 280, "userfaultfd": 282},
        **{"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427},
        **{"setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "setxattrat": 463},
        **{"removexattr": 14, "lremovexattr": 15, "fremovexattr": 16, "removexattrat": 466},
        **{"shmget": 194, "semget": 190, "msgget": 186},
        **{"setpriority": 140, "ioprio_set": 30, "prlimit64": 261},
        **{"sched_setparam": 118, "sched_setscheduler": 119, "sched_setaffinity": 122, "sched_setattr": 274},
    },
}
_AUDIT_MACHINES = {"x86_64": 62 | 0xC0000000, "aarch64": 183 | 0xC0000000}


@dataclass(frozen=True, kw_only=True)
class SyscallRule:
    """Refuse a call with `error`: always, or when one of its arguments, masked, fits.

    `bits`: only when one of them is set. `is_one_of`: only for these values. `is_none_of`: for all but these values.
    `high` looks at the upper 32 bits of the argument. `notify`: whoever holds the filter's listener answers instead.
    """

    call: str
    error: int = errno.EPERM
    notify: bool = False
    argument: int = 0
    high: bool = False
    mask: int = 0xFFFFFFFF
    bits: int = 0
    is_one_of: tuple[int, ...] = ()
    is_none_of: tuple[int, ...] = ()


#: Opens sockets and files in the kernel's own threads, past a filter on calls. Programs take ENOSYS for an old kernel.
_IO_URING = tuple(
    SyscallRule(call=call, error=errno.ENOSYS) for call in ("io_uring_setup", "io_uring_enter", "io_uring_register")
)
#: Access control lists are such attributes. Tools without a user of their own share it with files outside of the
#: workspace, and Landlock does not govern attributes. Programs that copy files (cp, tar, Python) take this error for a
#: file system without attributes.
_ATTRIBUTES = tuple(
    SyscallRule(call=call, error=errno.EOPNOTSUPP)
    for call in (
        *("setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
        *("removexattr", "lremovexattr", "fremovexattr", "removexattrat"),
    )
)
#: Memory of System V that stays when every process of the tools has been ended: when there is no other left the kernel
#: ends the parent for it. Less than a page is let through, for PostgreSQL asks for a few bytes to see who else runs.
_LASTING_MEMORY = (
    SyscallRule(call="shmget", error=errno.ENOSPC, argument=1, bits=_PAGE_OR_MORE),
    SyscallRule(call="shmget", error=errno.ENOSPC, argument=1, high=True, bits=0xFFFFFFFF),
    *(SyscallRule(call=call, error=errno.ENOSPC) for call in ("msgget", "semget")),
)
#: What no tool needs. Not here: mount and its family, which Landlock refuses and which need a capability; ptrace and
#: process_vm_readv, which Landlock bounds to what the tools have started, so that they can be debugged.
BASE = (
    *_IO_URING,
    *_ATTRIBUTES,
    *_LASTING_MEMORY,
    # A user namespace gives all capabilities over a part of the kernel that is otherwise out of reach.
    SyscallRule(call="unshare", bits=_CLONE_NEWUSER),
    SyscallRule(call="clone", bits=_CLONE_NEWUSER),
    # Its flags lie in memory, where no filter can look; the C library falls back to clone.
    SyscallRule(call="clone3", error=errno.ENOSYS),
    # Key rings belong to the user and the login session, whatever sandbox a process is in, and outlive the run.
    *(SyscallRule(call=call) for call in ("add_key", "request_key", "keyctl")),
    # They serve attacks on the kernel more often than any build.
    *(SyscallRule(call=call) for call in ("bpf", "perf_event_open", "userfaultfd")),
    # The first is kernel surface only; the second reaches the host of a virtual machine around every network rule.
    SyscallRule(call="socket", error=errno.EAFNOSUPPORT, is_one_of=(_AF_ALG, _AF_VSOCK)),
)
#: `network: none`: of all families of sockets, present and future, the one that stays on the machine.
NO_NETWORK = (
    *_IO_URING,
    *(SyscallRule(call=call, error=errno.EACCES, is_none_of=(_AF_UNIX,)) for call in ("socket", "socketpair")),
)
#: Listed hosts: the parent answers every call for a socket that is not of this machine, and gives TCP sockets that
#: are connected to its proxy already. So there is nothing left to connect: the parent says so for an address as long as
#: one of the internet, unless it is a socket file's; one of another size goes to the kernel, where Landlock refuses. A
#: dissolved connection could wait for another one, past Landlock: the parent lets socket files alone listen. It could
#: also be made again with the first bytes that are sent; programs take the error for a kernel without that.
SOCKETS_FROM_PARENT = (
    *_IO_URING,
    SyscallRule(call="socketpair", error=errno.EACCES, is_none_of=(_AF_UNIX,)),
    SyscallRule(call="socket", notify=True, is_none_of=(_AF_UNIX,)),
    SyscallRule(call="connect", notify=True, argument=2, is_one_of=_INTERNET_ADDRESSES),
    SyscallRule(call="listen", notify=True),
    *(
        SyscallRule(call=call, error=errno.EOPNOTSUPP, argument=flags, bits=_MSG_FASTOPEN)
        for call, flags in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3))
    ),
)
#: For tools that keep the parent's user. What listens on that user's socket files (Docker, the session bus, a key
#: agent) starts programs outside of the sandbox, and neither Landlock nor the loss of capabilities keeps anybody from
#: connecting. A pair is tied to its other end; only one of datagrams can be pointed elsewhere.
NO_UNIX_SOCKETS = (
    SyscallRule(call="socket", error=errno.EACCES, is_one_of=(_AF_UNIX,)),
    SyscallRule(
        call="socketpair", error=errno.EACCES, argument=1, mask=_TYPE_BITS, is_none_of=(_SOCK_STREAM, _SOCK_SEQPACKET)
    ),
)


def leave_alone(processes: Iterable[int]) -> tuple[SyscallRule, ...]:
    """Refuse to change priority, processors and limits of these processes and of the groups that they lead.

    The kernel asks for the same user only, and the launcher shares the tools'. Other ids stay open: a thread that pins
    itself names its own.
    """
    ids = tuple(processes)
    by_first = ("sched_setscheduler", "sched_setparam", "sched_setattr", "sched_setaffinity", "prlimit64")
    return (
        *(SyscallRule(call=call, is_one_of=ids) for call in by_first),
        *(SyscallRule(call=call, argument=1, is_one_of=ids) for call in ("setpriority", "ioprio_set")),
        # All processes of a user at once.
        SyscallRule(call="setpriority", is_one_of=(_PRIO_USER,)),
        SyscallRule(call="ioprio_set", is_one_of=(_IOPRIO_WHO_USER,)),
    )


_LIBC = ctypes.CDLL(None, use_errno=True)
_INSTRUCTION = struct.Struct("=HBBI")
_NULL = ctypes.c_ulong(0)


def refuse(rules: tuple[SyscallRule, ...]) -> str:
    """Put a filter on this process for good; gives the problem, empty when it is in force."""
    try:
        with _compile(rules) as program:
            _succeed(_LIBC.prctl(_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), program, _NULL, _NULL))
    except OSError as exc:
        return exc.strerror or str(exc)
    return ""


def refuse_by_parent(rules: tuple[SyscallRule, ...], parent: int) -> str:
    """The same for rules that notify. `parent` is a unix socket whose other end is sent the listener; both are closed
    here, for who holds the listener may let any call through."""
    with socket.socket(fileno=parent) as end:
        try:
            with _compile(rules) as program:
                call, flags = _SECCOMP[os.uname().machine], _NEW_LISTENER | _WAIT_KILLABLE_RECV
                listener = _succeed(
                    _LIBC.syscall(*map(ctypes.c_long, (call, _SET_MODE_FILTER, flags)), program),
                )
            try:
                socket.send_fds(end, [b"L"], [listener])
            finally:
                os.close(listener)
        except OSError as exc:
            return exc.strerror or str(exc)
    return ""


@contextlib.contextmanager
def _compile(rules: tuple[SyscallRule, ...]) -> Iterator[bytes]:
    """A struct sock_fprog: the number of instructions and, after padding, a pointer to them."""
    machine = os.uname().machine
    if machine not in NUMBERS or struct.calcsize("P") != 8 or not hasattr(_LIBC, "prctl"):
        raise OSError(0, f"this version has no filter for {os.uname().sysname} {machine}")
    code = b"".join(_program(rules, machine))
    buffer = ctypes.create_string_buffer(code, len(code))
    yield struct.pack("HP", len(code) // _INSTRUCTION.size, ctypes.addressof(buffer))


def _succeed(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _program(rules: tuple[SyscallRule, ...], machine: str) -> list[bytes]:
    """Refuse calls of another convention, whose numbers mean something else, then what the rules say."""
    code = [
        _word(_LOAD_WORD, _MACHINE),
        _word(_EQUAL, _AUDIT_MACHINES[machine], yes=1, no=0),
        _give(errno.EPERM),
        _word(_LOAD_WORD, _CALL),
        _word(_AT_LEAST, _X32_BIT, yes=0, no=1),
        _give(errno.ENOSYS),
    ]
    for rule in rules:
        block = [*_condition(rule), _word(_RETURN, _NOTIFY) if rule.notify else _give(rule.error)]
        code += [_word(_LOAD_WORD, _CALL), _word(_EQUAL, NUMBERS[machine][rule.call], yes=0, no=len(block)), *block]
    return [*code, _word(_RETURN, _ALLOW)]


def _condition(rule: SyscallRule) -> list[bytes]:
    """Instructions after which the next one refuses, and the one after that goes on."""
    if not (rule.bits or rule.is_one_of or rule.is_none_of):
        return []
    load = [
        _word(_LOAD_WORD, _FIRST_ARGUMENT + rule.argument * _SIZE_OF_ARGUMENT + (_HIGH_WORD if rule.high else 0)),
        _word(_MASK, rule.mask),
    ]
    if rule.bits:
        return [*load, _word(_HAS_BIT, rule.bits, yes=0, no=1)]
    values = rule.is_one_of or rule.is_none_of
    left = range(len(values) - 1, -1, -1)
    if rule.is_none_of:
        return [*load, *(_word(_EQUAL, value, yes=after + 1, no=0) for value, after in zip(values, left, strict=True))]
    tests = [_word(_EQUAL, value, yes=after, no=0 if after else 1) for value, after in zip(values, left, strict=True)]
    return [*load, *tests]


def _give(error: int) -> bytes:
    return _word(_RETURN, _ERROR | error)


def _word(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    return _INSTRUCTION.pack(code, yes, no, value)
