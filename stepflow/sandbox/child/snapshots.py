"""Takes snapshots of the working tree as trees of a private repository, and hands on what is new in one pack."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from .paths import Refusal
from .snapshot_git import EMPTY_TREES, SnapshotGit, Standing
from .snapshot_restore import restore
from .work_tree import WorkTree
from .workers import WorkLimits, run_streaming_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .child_processes import ChildProcesses
    from .snapshot_git import Marks
    from .workers import Work

#: git, which maps whole packs, lives within the same limits; what is read of it is bounded there.
_LIMITS = WorkLimits(
    memory=None,
    starts_programs=True,
    no_memory="it needs more memory than a snapshot may use",
    too_slow="it took longer than {:g} s",
    no_answer="it ended without an answer; it ran into one of its limits",
)
#: Of what files held before a snapshot: bytes of one, and of all that one snapshot brings. Nobody reads a longer diff.
OLD_FILE_LIMIT = 256 * 1024
_OLD_TOTAL_LIMIT = 4 * 1024 * 1024
#: Without deltas: what it holds is searched for secrets.
_PLAIN_PACK = ("-q", "--window=0", "--depth=0", "--no-reuse-delta")
_FOLDER, _REPOSITORY = b"040000", b"160000"


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What makes the next snapshot cheap: the last one's `tree`, what was left out of it, HEAD and the index as they
    were, with their marks. `sent` are the objects that were handed on. Without a `base`, not even that of a repository
    without a commit, nothing is known."""

    base: str | None = None
    tree: str = ""
    left_out: dict[str, str] = field(default_factory=dict)
    standing: Standing = field(default_factory=Standing)
    standing_mark: str = ""
    rules_mark: str = ""
    sent: frozenset[str] = frozenset()

    @property
    def place(self) -> dict[str, str]:
        """What the parent stores of it, and names to say from where the next snapshot goes on."""
        standing = self.standing
        names = {"head": standing.head, "commit": standing.commit, "index": standing.index}
        return {"base": self.base or "", "tree": self.tree, **names}


class Taking:
    """One snapshot. `previous` is the one that the parent has stored last."""

    def __init__(
        self, git: SnapshotGit, request: Mapping[str, object], memory: Memory, hand_on: Callable[[bytes], object]
    ) -> None:
        self._git, self._memory, self._hand_on = git, memory, hand_on
        self._tree = WorkTree(git, request)
        self._previous = cast("Mapping[str, str]", request["previous"] or {})
        self._total = int(str(request["total"]))
        self._withheld = frozenset(cast("list[str]", request["withhold"]))
        self._base = str(request["base"])

    def take(self) -> dict[str, object]:
        """What the snapshot is, after its pack was handed on; and what to remember. Raises `Refusal`."""
        is_new = self._memory.base is None or not self._git.is_made
        if is_new:
            self._memory = Memory(base=self._git.make(self._base))
        # Where what was told last is not what is stored, the parent may lack any of it.
        keeps = self._memory.place == self._previous
        if not keeps:
            self._memory = replace(self._memory, sent=frozenset())
        marks = self._git.marks()
        memory = self._look(marks)
        files, bare = 0, dict[str, tuple[int, str]]()
        before = "" if is_new else self._previous.get("tree", "")
        before = before or self._git.tree_of(memory.base or "")
        wanted: set[str] = set()
        if memory.tree != before or not self._previous:
            files, new, old = self._differences(before, memory.tree)
            bare = self._bare(old - new - memory.sent)
            wanted |= {memory.tree, before, *new, *(old - bare.keys())}
        wanted |= self._new_of_standing(memory)
        wanted -= {*memory.sent, *EMPTY_TREES.values()}
        if wanted:
            names = "".join(f"{name}\n" for name in sorted(wanted)).encode()
            self._git.ask("pack-objects", "--stdout", *_PLAIN_PACK, given=names, limit=self._total, feed=self._hand_on)
        return {
            **memory.place,
            "left_out": memory.left_out,
            "bare": bare,
            "files": files,
            "memory": {**asdict(replace(memory, sent=frozenset())), "sent": sorted(wanted), "keeps": keeps},
        }

    def _look(self, marks: Marks) -> Memory:
        """The same memory with what is there now."""
        memory = self._memory
        if not marks.rules or marks.rules != memory.rules_mark:
            self._git.take_rules()
        standing = memory.standing
        if not marks.standing or marks.standing != memory.standing_mark:
            standing = self._git.look_at_standing()
        paths, left = self._tree.changed()
        if standing.forced != memory.standing.forced:
            paths += [path.encode("latin-1") for path in standing.forced]
        left |= self._tree.add(paths, self._total)
        left_out = {path.decode("latin-1"): why for path, why in sorted(left.items())}
        dropped = [path for path in left if path.decode("latin-1") not in memory.left_out]
        self._tree.drop(dropped)
        tree = memory.tree
        if not tree or dropped or not left.keys() >= set(paths):
            tree = self._git.ask("write-tree", "--missing-ok").decode().strip()
        return replace(
            memory,
            tree=tree,
            left_out=left_out,
            standing=standing,
            standing_mark=marks.standing,
            rules_mark=marks.rules,
        )

    def _differences(self, before: str, after: str) -> tuple[int, set[str], set[str]]:
        """How many files differ between two trees, the objects that came, and those that went; submodules are no
        objects of this repository."""
        said = self._git.ask("diff-tree", "-r", "-t", "-z", "--no-renames", before, after)
        files, new, old = 0, set[str](), set[str]()
        for record in said.split(b"\0")[:-1:2]:
            mode_before, mode_after, went, came, _ = record[1:].split(b" ")
            files += _FOLDER not in (mode_before, mode_after)
            if mode_before != _REPOSITORY:
                old.add(went.decode())
            if mode_after != _REPOSITORY:
                new.add(came.decode())
        nothing = {"0" * len(after)}
        return files, new - nothing, old - nothing

    def _bare(self, objects: set[str]) -> dict[str, tuple[int, str]]:
        """Of files that are no more: the size of those whose content is not handed on, and why it is not."""
        bare: dict[str, tuple[int, str]] = {}
        if not objects:
            return bare
        query = "".join(f"{name}\n" for name in sorted(objects)).encode()
        said = self._git.ask("cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)", given=query)
        room = _OLD_TOTAL_LIMIT
        for line in said.decode().splitlines():
            name, kind, *facts = line.split(" ")
            size = int(facts[0]) if facts else 0
            if kind == "tree":
                continue
            why = "missing" if not facts else "secret" if name in self._withheld else ""
            if not why and size > OLD_FILE_LIMIT:
                why = "large"
            elif not why and size > room:
                why = "many"
            if why:
                bare[name] = (size, why)
            else:
                room -= size
        return bare

    def _new_of_standing(self, memory: Memory) -> set[str]:
        """The objects of HEAD's commits and of the index that neither the base nor the snapshot before has."""
        now, known = memory.standing, self._previous
        if (now.commit, now.index) == (known.get("commit", ""), known.get("index", "")):
            return set()
        there = [name for name in (memory.tree, known.get("tree"), known.get("index")) if name]
        # The trees are named beside their commits, whose trees git leaves out of account where no other is new.
        for commit in filter(None, (memory.base, known.get("commit"))):
            there += [commit, f"{commit}^{{tree}}"]
        names = [name for name in (now.commit, now.index) if name]
        if not names:
            return set()
        said = self._git.ask("rev-list", "--objects", "--no-object-names", "--ignore-missing", *names, "--not", *there)
        return set(said.decode().split())


class Snapshots:
    """The checkout's snapshots, each taken and restored by a worker of its own. The private repository is in
    `folder`."""

    def __init__(self, children: ChildProcesses, checkout: str, folder: str) -> None:
        self._children, self._checkout, self._folder = children, checkout, folder
        self._memory = Memory()

    def take(self, request: Mapping[str, object], hand_on: Callable[[bytes], None]) -> dict[str, object]:
        """Hand on the pack of a snapshot, and say what it is. Raises `Refusal` when none can be taken."""
        memory = self._memory

        def work(feed: Callable[[bytes], object]) -> dict[str, object]:
            git = SnapshotGit(self._checkout, self._folder)
            return Taking(git, request, memory, feed).take()

        # After a failure nothing is believed of what the worker may have left half done.
        self._memory = Memory()
        answer = self._run(work, request, hand_on)
        now = cast("dict[str, Any]", answer.pop("memory"))
        sent = frozenset(now["sent"]) | (memory.sent if now.pop("keeps") else frozenset())
        self._memory = Memory(**{**now, "standing": Standing(**now["standing"]), "sent": sent})
        return answer

    def restore(self, request: Mapping[str, object], wait: Callable[[], bytes]) -> dict[str, object]:
        """Put a snapshot back, whose pack `wait` gives. Raises `Refusal` when it does not fit the checkout."""
        self._memory = Memory()
        with tempfile.TemporaryFile() as spool:
            missing = int(str(request["bytes"]))
            while missing > 0:
                piece = wait()
                missing -= len(piece)
                spool.write(piece)
            self._children.end()

            def work(_: object) -> dict[str, object]:
                spool.seek(0)
                restore(SnapshotGit(self._checkout, self._folder), request, spool)
                return {}

            answer = self._run(work, request, _refuse, holds=(spool.fileno(),))
        snapshot = cast("Mapping[str, object]", request["snapshot"])
        self._memory = Memory(base=str(snapshot["base"]))
        return answer

    def _run(
        self, work: Work, request: Mapping[str, object], hand_on: Callable[[bytes], object], holds: tuple[int, ...] = ()
    ) -> dict[str, object]:
        timeout = float(str(request["timeout"]))
        return run_streaming_worker(self._children, work, timeout, hand_on, limits=_LIMITS, holds=holds)


def _refuse(_: bytes) -> None:
    raise Refusal("nothing was to be streamed")
