"""Takes snapshots, and serves them and their restoring to the parent by a worker that may hang or die without harm."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from .git import COMMIT
from .paths import Refusal, below, read_regular, reason
from .snapshot_git import (
    Git,
    Standing,
    digest_of,
    has_repository,
    is_sure,
    list_index,
    list_tree,
    look,
    pack_new,
    pieces_of,
    read_index,
    rules_mark,
)
from .snapshot_restore import Restoring
from .snapshot_state import (
    LINK,
    Known,
    Memory,
    Scan,
    object_id,
    overlay_of,
    scan,
    send_origins,
    unsent_origins,
    usual_modes,
)
from .wire import BLOB, MANIFEST, ORIGIN, RECORD_HEADER, pack_record
from .workers import LastingWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .child_processes import ChildProcesses
    from .paths import Below, Key
    from .snapshot_state import Entry, ScannedEntry


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bytes: of one file, of all that is sent, of a pack of objects."""

    file: int
    total: int
    pack: int


class Taking:
    """One snapshot."""

    def __init__(self, root: str, git: Git, request: Mapping[str, object], hand_on: Callable[[bytes], object]) -> None:
        self._root, self._git, self._hand_on = root, git, hand_on
        self._base = str(request["base"])
        self._exclude = frozenset(str(path).encode("latin-1") for path in cast("list[object]", request["exclude"]))
        limits = cast("Mapping[str, int]", request["limits"])
        self._limits = Limits(file=int(limits["file"]), total=int(limits["total"]), pack=int(limits["pack"]))
        self._builds = bool(request["builds"])
        self._free_bytes = self._limits.total
        self._packs: list[str] = []

    def take(self, before: Memory | None) -> tuple[dict[str, object], Memory | None]:
        """The answer, and what to remember; None when that is as `before`, which stays untouched. Raises `Refusal`."""
        now = self._begin(before)
        objects: set[str] | None = None
        if has_repository(self._root):
            now.standing, objects = self._look_at_git(now)
        seen = self._scan(now)
        if before and self._is_same(before, now, seen):
            return {"same": True, "special": len(seen.special)}, None
        self._read(now, seen)
        if not before:
            now.modes = usual_modes(now)
        now.overlay = overlay_of(now)
        if before and now.overlay == before.overlay and _git_part(now) == _git_part(before):
            now.sent = before.sent
            return {"same": True, "special": len(seen.special)}, now
        if objects is not None:
            wanted = objects - {oid for _, oid in now.tree.values()}
            self._pack(now, wanted)
        self._send_manifest(before, now)
        return {"same": False, "special": len(seen.special)}, now

    def _begin(self, before: Memory | None) -> Memory:
        if before:
            return Memory(**{**vars(before), "sent": set(before.sent), "origins_sent": set(before.origins_sent)})
        base = self._base
        if has_repository(self._root):
            base = (
                base or self._git.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}", fine=(0, 1)).decode().strip()
            )
            if base and not COMMIT.fullmatch(base):
                raise Refusal(f"{base!r} is no commit id")
            return Memory(base=base, tree=list_tree(self._git, base))
        return Memory()

    def _look_at_git(self, now: Memory) -> tuple[Standing, set[str] | None]:
        """The standing with the index; the ids of staged contents when the index is another one."""
        before, standing = now.standing, look(self._root, self._git, now.standing)
        if standing is before:
            return before, None
        read = read_index(self._root)
        if read is None:
            return standing, set()
        data, standing.index_mtime = read
        pieces = [(digest_of(piece), piece) for piece in pieces_of(data)]
        standing.index = [digest for digest, _ in pieces]
        if standing.index == before.index:
            standing.tracked = before.tracked
            return standing, set() if standing.commit != before.commit else None
        standing.tracked, objects = list_index(self._git, data)
        if not all(self._send(now, BLOB, digest, piece) for digest, piece in pieces):
            raise Refusal(f"the index alone has more than the {self._limits.total} bytes that a snapshot may have")
        return standing, objects

    def _scan(self, now: Memory) -> Scan:
        known = now.known
        rules = rules_mark(self._root, now.excludes)
        if rules != now.rules or not is_sure(rules) or known.tracked != now.standing.tracked:
            known = Known(tracked=now.standing.tracked)
            now.excludes = self._configured_excludes() if has_repository(self._root) else b""
            now.rules = rules_mark(self._root, now.excludes)
        ask = self._git.ignored if has_repository(self._root) else lambda _: set()
        seen = scan(self._root, known, ask, self._exclude)
        now.known = Known(
            tracked=known.tracked, examined=frozenset(seen.examined), ignored=frozenset(seen.ignored), rules=seen.rules
        )
        return seen

    def _configured_excludes(self) -> bytes:
        return self._git.ask("config", "--type=path", "--get", "core.excludesFile", fine=(0, 1)).rstrip(b"\n")

    def _is_same(self, before: Memory, now: Memory, seen: Scan) -> bool:
        """Whether nothing at all moved, so that not even what is remembered changes."""
        if now.standing is not before.standing or seen.left or seen.entries.keys() != before.entries.keys():
            return False
        entries = before.entries
        return all(entries[path][0] == one.key and one.key is not None for path, one in seen.entries.items())

    def _read(self, now: Memory, seen: Scan) -> None:
        before = now.entries
        entries: dict[bytes, tuple[Key, Entry]] = {}
        changed: list[bytes] = []
        for path, scanned in seen.entries.items():
            known = before.get(path)
            if known and known[0] == scanned.key and scanned.key is not None:
                entries[path] = known
            else:
                changed.append(path)
        # The small ones first: when there is no room for all, one large file is left out, not many small ones.
        changed.sort(key=lambda path: seen.entries[path].size)
        in_order = sorted(changed) if sum(seen.entries[path].size for path in changed) < self._free_bytes else changed
        with below(self._root) as tree:
            for path in in_order:
                with contextlib.suppress(FileNotFoundError):
                    entries[path] = (seen.entries[path].key, self._entry(now, tree, path, seen.entries[path]))
        entries.update({path: (None, ("left out", why)) for path, why in seen.left.items()})
        now.entries = entries

    def _entry(self, now: Memory, tree: Below, path: bytes, entry: ScannedEntry) -> Entry:
        if entry.kind == "folder":
            return ("folder", entry.mode)
        try:
            return _link(now, tree, path) if entry.kind == "link" else self._file(now, tree, path, entry.size)
        except FileNotFoundError:
            raise
        except OSError as exc:
            return ("left out", reason(exc))

    def _file(self, now: Memory, tree: Below, path: bytes, size: int) -> Entry:
        read = read_regular(tree, path, self._limits.file) if size <= self._limits.file else None
        if read is None:
            return ("left out", f"has more than {self._limits.file} bytes")
        data, info = read
        mode = info.st_mode & 0o777
        if path in now.tree and now.tree[path][0] != LINK and object_id(now.base, data) == now.tree[path][1]:
            return ("base", mode)
        digest = digest_of(data)
        if not self._send(now, BLOB, digest, data):
            return ("left out", f"the snapshot would have more than {self._limits.total} bytes")
        return ("file", mode, digest, len(data))

    def _send(self, now: Memory, kind: bytes, digest: str, data: bytes) -> bool:
        """False when the snapshot has no room for it."""
        if digest in now.sent:
            return True
        if len(data) + RECORD_HEADER.size > self._free_bytes:
            return False
        self._free_bytes -= len(data) + RECORD_HEADER.size
        pack_record(kind, data, self._hand_on)
        if kind == BLOB:
            # An origin is not among those that were sent: the parent keeps none with a secret in it.
            now.sent.add(digest)
        return True

    def _pack(self, now: Memory, objects: set[str]) -> None:
        now.standing, pack = pack_new(
            self._git, now.base, now.standing, objects, limit=min(self._limits.pack, self._free_bytes)
        )
        if pack:
            digest = digest_of(pack)
            if not self._send(now, BLOB, digest, pack):
                raise Refusal(f"the snapshot would have more than {self._limits.total} bytes")
            self._packs.append(digest)

    def _send_manifest(self, before: Memory | None, now: Memory) -> None:
        old = before.overlay if before else {}
        manifest: dict[str, object] = {
            "base": now.base,
            "modes": list(now.modes),
            "whole": before is None,
            "set": {path.decode("latin-1"): entry for path, entry in now.overlay.items() if old.get(path) != entry},
            "drop": [path.decode("latin-1") for path in old.keys() - now.overlay.keys()],
            "packs": self._packs,
        }
        if before or self._builds:
            manifest["origins"] = self._send_origins(now, old)
        if not before or _git_part(now) != _git_part(before):
            manifest["git"] = _git_part(now)
        data = json.dumps(manifest, separators=(",", ":")).encode()
        pack_record(MANIFEST, data, self._hand_on)

    def _send_origins(self, now: Memory, old: dict[bytes, Entry]) -> dict[str, tuple[str | int, ...]] | None:
        """What the base holds where the tree has just left it or come back to it; None when git cannot tell, for no
        snapshot shall fail because of that."""

        paths = unsent_origins(now.tree, now.origins_sent, old, now.overlay)
        try:
            origins = send_origins(
                self._git, now.tree, paths, lambda digest, data: self._send(now, ORIGIN, digest, data)
            )
        except Refusal:
            return None
        now.origins_sent.update(paths)
        return origins


def _git_part(memory: Memory) -> dict[str, object] | None:
    return memory.standing.as_message() if memory.standing.mark else None


def _link(now: Memory, tree: Below, path: bytes) -> Entry:
    folder, name = tree.holder(path)
    target = os.readlink(name, dir_fd=folder)
    if path in now.tree and now.tree[path] == (LINK, object_id(now.base, target)):
        return ("base", 0)
    return ("link", target.decode("latin-1"))


class Snapshots:
    """The checkout's snapshots. `token` names what is remembered; whoever does not know it gets a whole snapshot."""

    def __init__(self, children: ChildProcesses, checkout: str) -> None:
        self._children, self._checkout = children, checkout
        self._token = 0
        self._packed_memory = b""
        self._worker: LastingWorker | None = None

    def take(self, request: Mapping[str, object], hand_on: Callable[[bytes], None]) -> dict[str, object]:
        """Hand on the records of a snapshot. Raises `Refusal` when none can be taken."""
        with_whole = {**request, "whole": request["token"] != self._token}
        worker = self._living_worker()
        answer, memory = worker.ask(with_whole, float(str(request["timeout"])), hand_on)
        if memory:
            self._packed_memory, self._token = memory, self._token + 1
        return {**answer, "token": self._token}

    def restore(self, request: Mapping[str, object], wait: Callable[[], bytes]) -> dict[str, object]:
        """Put a snapshot back, whose records `wait` gives. Raises `Refusal` when it does not fit the checkout."""
        self._drop_worker()
        self._packed_memory = b""
        self._token += 1
        with tempfile.TemporaryFile() as spool:
            missing = int(str(request["bytes"]))
            while missing > 0:
                piece = wait()
                missing -= len(piece)
                spool.write(piece)
            spool.flush()
            self._children.end()

            def work(request: Mapping[str, object], _: object) -> tuple[dict[str, object], bytes]:
                spool.seek(0)
                return Restoring(self._checkout, Git(self._children), request, spool).restore(), b""

            worker = LastingWorker(self._children, work, holds=(spool.fileno(),))
            try:
                return worker.ask(request, float(str(request["timeout"])), _refuse)[0]
            finally:
                worker.close()

    def _living_worker(self) -> LastingWorker:
        """The worker of the call before, or a new one that begins with what that one remembered."""
        self._children.reap()
        if self._worker and not self._worker.alive:
            self._drop_worker()
        if not self._worker:
            self._worker = LastingWorker(
                self._children, _Taker(self._children, self._checkout, self._packed_memory).take
            )
        return self._worker

    def _drop_worker(self) -> None:
        if self._worker:
            self._worker.close()
            self._worker = None


class _Taker:
    """The worker's part: what was remembered stays at hand from call to call."""

    def __init__(self, children: ChildProcesses, checkout: str, packed_memory: bytes) -> None:
        self._children, self._checkout = children, checkout
        self._packed_memory = packed_memory
        self._memory: Memory | None = None

    def take(self, request: Mapping[str, object], feed: Callable[[bytes], object]) -> tuple[dict[str, object], bytes]:
        """One snapshot. Gives no bytes to keep where they are what they were."""
        if self._packed_memory:
            self._memory, self._packed_memory = Memory.of(self._packed_memory), b""
        before = None if request["whole"] else self._memory
        answer, now = Taking(self._checkout, Git(self._children), request, feed).take(before)
        if now is None:
            return answer, b""
        self._memory = now
        return answer, now.pack()


def _refuse(_: bytes) -> None:
    raise Refusal("nothing was to be streamed")
