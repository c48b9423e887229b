"""A change between two commits of the user's repository, taken apart into trees that can be tried one by one. All of
it happens in a repository beside the user's, which borrows its objects."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stepflow.domain.effect import Suggestion
from stepflow.domain.proof import ChangedTestFile, ChangeTrees, Hunk
from stepflow.domain.text import count
from stepflow.errors import BoundaryError, InputError
from stepflow.sandbox.child.git import NO_CONFIGURATION, PLAIN_ENVIRONMENT
from stepflow.sandbox.host_git import ask_git, fetch_bundle, run_git
from stepflow.sandbox.workspace import object_folders

#: Byte for byte as git has it, with lines that say where they are even without any around them.
_DIFF = (
    *("diff", "--unified=0", "--find-renames", "--no-color", "--no-ext-diff", "--no-textconv", "--binary"),
    *("--full-index", "--src-prefix=a/", "--dst-prefix=b/", "--ignore-submodules=all"),
)
_LINES = re.compile(r"@@ -\d+(?:,\d+)? \+(?P<first>\d+)(?:,(?P<count>\d+))? @@")
#: What only a whole file can be taken back of: it is new, gone, renamed, binary, or of another mode.
_AS_A_WHOLE = re.compile(r"^(?:new file|deleted file|rename|copy|old mode|GIT binary patch|Binary files)", re.MULTILINE)
#: Where a branch usually begins.
_MAIN_BRANCHES = ("origin/HEAD", "origin/main", "origin/master", "main", "master")
_FETCH_ALL = "Fetch the whole history: with actions/checkout, `fetch-depth: 0`."
#: A folder of ours may belong to somebody else.
_TRUSTED = ("safe.directory=*",)
_IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "stepflow"), ("EMAIL", "stepflow@stepflow.invalid"), ("DATE", "@0 +0000"))
}


_STATES = {"A": "added", "D": "removed"}
#: Modes of files whose lines can be edited, and a line of one.
_REGULAR = ("100644", "100755")
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, kw_only=True)
class EditedTree:
    """A tree that was made by applying suggestions, or the `problem` that kept it from being made."""

    tree: str = ""
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class _FilePatch:
    """The part of a diff about one file: its names before and after (empty where there was none), and its text."""

    before: str
    after: str
    header: str
    hunks: tuple[str, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Its names, the later one first."""
        return tuple(dict.fromkeys(name for name in (self.after, self.before) if name))


class ChangeRepository:
    """The repository beside the user's, in this folder. Raises `BoundaryError` where git cannot make it."""

    def __init__(self, folder: Path, checkout: Path) -> None:
        self.folder, self._nothing = folder, folder / "nothing"
        common = (checkout / ask_git(checkout, "rev-parse", "--git-common-dir")).resolve()
        self._format = ask_git(checkout, "rev-parse", "--show-object-format")
        self._nothing.mkdir(parents=True)
        run_git(folder, "init", "--quiet", "--bare", "--template=", f"--object-format={self._format}", ".")
        borrowed = "".join(f"{each}\n" for each in object_folders(common / "objects"))
        (folder / "objects/info/alternates").write_text(borrowed, "utf-8", "surrogateescape")
        if (shallow := common / "shallow").exists():
            shutil.copyfile(shallow, folder / "shallow")

    def read(
        self, base: str, head: str, *, is_test: Callable[[str], bool], is_same_code: SameCode, most_hunks: int
    ) -> ChangeTrees:
        """Take the change between two commits apart: into its hunks, or into its files if there are more hunks."""
        patches = tuple(self._patches(base, head))
        tests = [each for each in patches if all(map(is_test, each.paths))]
        others = [each for each in patches if each not in tests]
        old_names = {each.before: each.paths[0] for each in tests if each.before}
        by_file = sum(max(1, len(each.hunks)) for each in others) > most_hunks
        hunks = (hunk for each in others for hunk in self._hunks(each, base, head, by_file=by_file))
        return ChangeTrees(
            tests=tuple(each.after for each in tests if each.after),
            after=self.tree_of(head),
            before=self._with_files(base, tests, of=head),
            # By the names that the command has for them; those that are new stay.
            old_tests=self._with_names(head, old_names, of=base) if old_names else "",
            hunks=tuple(replace(hunk, exempt=self._exemption(hunk, head, is_same_code)) for hunk in hunks),
            test_files=tuple(
                ChangedTestFile(
                    file=each.paths[0],
                    before=self._ask("show", f"{base}:{each.before}", may_fail=True) if each.before else None,
                    after=self._ask("show", f"{head}:{each.after}", may_fail=True) if each.after else None,
                )
                for each in tests
            ),
        )

    def fetch(self, bundle: Path) -> str:
        """Take the commits of a bundle in, checked by git; gives the last one."""
        fetch_bundle(self._nothing, bundle, "HEAD", settings=_TRUSTED, extra_env=self._environment)
        return self._ask("rev-parse", "--verify", "FETCH_HEAD^{commit}")

    def copy_tree(self, tree: str, folder: Path) -> str:
        """Let a new repository in this folder have one commit, with this tree, and no object besides: from what else
        there is, a test could tell which part of the change was reverted. Gives the commit."""
        commit = self._ask("commit-tree", tree, "-m", "trial", extra_env=_IDENTITY)
        self._ask("update-ref", "--no-deref", "HEAD", commit)
        run_git(folder, "init", "--quiet", "--bare", "--template=", f"--object-format={self._format}", ".")
        run_git(folder, "fetch", "--quiet", "--no-tags", str(self.folder), "HEAD", settings=("fetch.unpackLimit=1",))
        (folder / "FETCH_HEAD").unlink()
        run_git(folder, "update-ref", "--no-deref", "HEAD", commit)
        return commit

    def changed_files(self, base: str, head: str) -> tuple[str, ...]:
        """Return the paths of the files that differ between two commits, of renamed ones both."""
        return tuple(self.changes(base, head))

    def changes(self, base: str, head: str) -> dict[str, str]:
        """Return the same paths, each with the word for what became of it: `added`, `changed` or `removed`."""
        listed = self._ask("diff", "--no-renames", "--name-status", "-z", "--ignore-submodules=all", base, head)
        words = iter(listed.split("\0")[:-1])
        return {path: _STATES.get(state, "changed") for state, path in zip(words, words, strict=True)}

    def commit_and_parents(self, commit: str) -> tuple[str, ...]:
        """Return the commit and its parents."""
        return tuple(self._ask("rev-list", "--no-walk", "--parents", commit).split(" "))

    def read_file(self, commit: str, path: str) -> bytes | None:
        """Return the content of a regular file; None where there is none."""
        mode, blob = self._entry(commit, path)
        return self._content(blob) if mode in _REGULAR else None

    def check_out(self, tree: str, folder: Path) -> None:
        """Write the files of a tree into a new folder. No program of the repository runs."""
        folder.mkdir()
        self._ask("read-tree", tree)
        self._ask("checkout-index", "--all", "--quiet", f"--prefix={folder}/")

    def without_files(self, commit: str, is_left_out: Callable[[str], bool]) -> str:
        """Return the tree of a commit without some of its files."""
        names = self._ask("ls-tree", "-r", "-z", "--name-only", commit).split("\0")
        left_out = [name for name in names if name and is_left_out(name)]
        return self._edit_index(commit, [("update-index", "--force-remove", "--", name) for name in left_out])

    def with_texts(self, commit: str, texts: Mapping[str, str | None]) -> str:
        """Return the tree of a commit, where files have these texts; None removes a file. What is in the way is
        removed, and a file keeps its mode."""
        words: list[tuple[str, ...]] = []
        for path, text in texts.items():
            if text is None:
                words.append(("update-index", "--force-remove", "--", path))
                continue
            mode, _ = self._entry(commit, path)
            mode = mode if mode in _REGULAR else _REGULAR[0]
            facts = f"{mode},{self._store(text.encode())},{path}"
            words.append(("update-index", "--add", "--replace", "--cacheinfo", facts))
        return self._edit_index(commit, words)

    def with_suggestions(self, commit: str, suggestions: Sequence[Suggestion]) -> EditedTree:
        """Return the tree of a commit where suggestions that do not overlap were applied, or why one of them cannot
        be."""
        words: list[tuple[str, ...]] = []
        for path in dict.fromkeys(each.path for each in suggestions):
            mode, blob = self._entry(commit, path)
            if mode not in _REGULAR:
                what = "this is no regular file" if mode else "there is no such file"
                return EditedTree(problem=f"it does not apply: {what}")
            edited = edit_lines(self._content(blob), [each for each in suggestions if each.path == path])
            if isinstance(edited, str):
                return EditedTree(problem=edited)
            words.append(("update-index", "--cacheinfo", f"{mode},{self._store(edited)},{path}"))
        return EditedTree(tree=self._edit_index(commit, words))

    def _entry(self, commit: str, path: str) -> tuple[str, str]:
        """Mode and object of a file, empty where nothing is; of a folder the object is empty."""
        mode, _, blob = self._ask("ls-tree", "-z", commit, "--", path).partition("\t")[0].partition(" blob ")
        return mode, blob

    def _content(self, blob: str) -> bytes:
        # In a file: output would lose the line breaks at its end.
        file = self._nothing / self._ask("unpack-file", blob)
        content = file.read_bytes()
        file.unlink()
        return content

    def _store(self, content: bytes) -> str:
        file = self._nothing / "content"
        file.write_bytes(content)
        name = self._ask("hash-object", "-w", "--no-filters", str(file))
        file.unlink()
        return name

    def _patches(self, base: str, head: str) -> Iterator[_FilePatch]:
        listed = self._ask("diff", "--find-renames", "--name-status", "-z", "--ignore-submodules=all", base, head)
        names = iter(listed.split("\0")[:-1])
        for status in names:
            before, after = next(names), ""
            if status[0] in "RC":
                after = next(names)
            elif status[0] != "D":
                after = before
            before = "" if status[0] in "AC" else before
            file = self.folder / "diff"
            places = (f":(literal){name}" for name in (before, after) if name)
            self._ask(*_DIFF, f"--output={file}", base, head, "--", *places)
            # Not as output: that would lose the line breaks at its end.
            header, *hunks = re.split(
                r"^(?=@@ )", file.read_bytes().decode("utf-8", "surrogateescape"), flags=re.MULTILINE
            )
            yield _FilePatch(before=before, after=after, header=header, hunks=tuple(hunks))

    def _hunks(self, patch: _FilePatch, base: str, head: str, *, by_file: bool) -> Iterator[Hunk]:
        places = [match for text in patch.hunks if (match := _LINES.match(text))]
        as_a_whole = _AS_A_WHOLE.search(patch.header) or not places
        if as_a_whole or by_file:
            last = max((_last_line(match) for match in places), default=0) if patch.after else 0
            first = 1 if as_a_whole else min(int(match["first"]) for match in places)
            tree = self._with_files(head, [patch], of=base)
            lines = (first if last else 0, last)
            yield Hunk(file=patch.paths[0], lines=lines, tree=tree, added=_added_lines("".join(patch.hunks)))
            return
        for text, match in zip(patch.hunks, places, strict=True):
            last = _last_line(match)
            lines = (int(match["first"]) if last else 0, last)
            yield Hunk(
                file=patch.after, lines=lines, tree=self._without(head, patch.header + text), added=_added_lines(text)
            )

    def _without(self, commit: str, patch: str) -> str:
        file = self.folder / "patch"
        file.write_bytes(patch.encode("utf-8", "surrogateescape"))
        words = ("apply", "--cached", "--reverse", "--unidiff-zero", "--whitespace=nowarn", str(file))
        return self._edit_index(commit, [words])

    def _with_files(self, commit: str, patches: Iterable[_FilePatch], *, of: str) -> str:
        """Return the tree of a commit, where these files are as another commit has them."""
        return self._with_names(commit, {path: path for patch in patches for path in patch.paths}, of=of)

    def _with_names(self, commit: str, names: Mapping[str, str], *, of: str) -> str:
        """Return the tree of a commit with these files of another one, by their names there and here."""
        listed = self._ask("ls-tree", "-r", "-z", of, "--", *names) if names else ""
        there = dict(line.split("\t", 1)[::-1] for line in listed.split("\0") if line)
        words = [("update-index", "--force-remove", "--", here) for path, here in names.items() if path not in there]
        for path, facts in there.items():
            mode, _, name = facts.split(" ")
            words.append(("update-index", "--add", "--cacheinfo", f"{mode},{name},{names[path]}"))
        return self._edit_index(commit, words)

    def _edit_index(self, commit: str, commands: Sequence[Sequence[str]]) -> str:
        self._ask("read-tree", commit)
        for words in commands:
            self._ask(*words)
        return self._ask("write-tree", "--missing-ok")

    def _exemption(self, hunk: Hunk, head: str, is_same_code: SameCode) -> str:
        if not any(hunk.lines):
            return ""
        texts = [self._ask("show", f"{version}:{hunk.file}", may_fail=True) for version in (head, hunk.tree)]
        return "comments or formatting" if all(texts) and is_same_code(hunk.file, *texts) else ""

    def tree_of(self, commit: str) -> str:
        """Return the tree of a commit."""
        return self._ask("rev-parse", "--verify", f"{commit}^{{tree}}")

    @property
    def _environment(self) -> dict[str, str]:
        # Git edits no index without a work tree.
        where = {"GIT_DIR": str(self.folder), "GIT_WORK_TREE": str(self._nothing)}
        return {**where, **NO_CONFIGURATION, **PLAIN_ENVIRONMENT}

    def _ask(self, *words: str, may_fail: bool = False, extra_env: dict[str, str] | None = None) -> str:
        environment = {**self._environment, **(extra_env or {})}
        return run_git(self._nothing, *words, may_fail=may_fail, settings=_TRUSTED, extra_env=environment)


def edit_lines(data: bytes, suggestions: Iterable[Suggestion]) -> bytes | str:
    """Return a file with suggestions applied, or why one cannot be. Their lines get the line ending of the first line
    that they replace, and a last line without one stays without one."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return "it does not apply: the file is not text in UTF-8"
    lines = _LINE.findall(data)
    original = tuple(lines)
    for each in sorted(suggestions, key=lambda each: each.first, reverse=True):
        old = lines[each.first - 1 : each.last]
        if each.last > len(lines) or not old:
            return f"it does not apply: the file has only {count(len(lines), 'line')}"
        before = lines[each.first - 2] if each.first > 1 else b""
        ending = b"\r\n" if (old[0] if old[0].endswith(b"\n") else before).endswith(b"\r\n") else b"\n"
        new = [line + ending for line in each.text.encode(errors="replace").split(b"\n")[:-1]]
        if new and not old[-1].endswith(b"\n"):
            new[-1] = new[-1].removesuffix(ending)
        if new == old:
            return "it changes nothing"
        if repeated := _find_repeated(new, original, each):
            return f"it repeats {repeated}, which would then be there twice"
        lines[each.first - 1 : each.last] = new
    return b"".join(lines)


def _find_repeated(new: list[bytes], lines: Sequence[bytes], suggestion: Suggestion) -> str:
    """Name the lines beside the replaced ones that a suggestion says again; empty if there are none. What the replaced
    lines say already is no repetition, and blank lines are none either."""
    above, below = lines[: suggestion.first - 1], lines[suggestion.last :]
    old = list(lines[suggestion.first - 1 : suggestion.last])
    for size in range(len(new), 0, -1):
        if _is_repetition(new[:size], above[-size:], old[:size]):
            return _name_lines("above", suggestion.first - size, suggestion.first - 1)
        if _is_repetition(new[-size:], below[:size], old[-size:]):
            return _name_lines("below", suggestion.last + 1, suggestion.last + size)
    return ""


def _is_repetition(said: Sequence[bytes], beside: Sequence[bytes], before: Sequence[bytes]) -> bool:
    texts = [[line.rstrip() for line in part] for part in (said, beside, before)]
    return texts[0] == texts[1] != texts[2] and any(texts[0])


def _name_lines(where: str, first: int, last: int) -> str:
    return f"line {first} {where} it" if first == last else f"lines {first} to {last} {where} it"


#: Whether two versions of the file of this name certainly mean the same.
SameCode = Callable[[str, str, str], bool]


def read_range(checkout: Path, text: str) -> tuple[str, str]:
    """Return the commits between which a change lies: `BASE..HEAD`, `BASE`, or empty for what is checked out beyond the
    main branch. The base is the last commit that both have. Raises `InputError`."""
    base, dots, head = text.replace("...", "..").partition("..")
    head = _commit(checkout, head or "HEAD")
    base = _commit(checkout, base) if base or dots else _commit(checkout, _default_base(checkout))
    common = ask_git(checkout, "merge-base", base, head, may_fail=True)
    if not common:
        raise InputError(
            f"{shlex.quote(text)} has no common commit, or the clone is too shallow to have it.",
            hint=_FETCH_ALL,
        )
    return common, head


def pull_request_range(checkout: Path, base: str, head: str) -> str:
    """Return the change of a pull request as `BASE..HEAD`, by the commits that its event names. What is checked out
    must be its head, or its merge commit. Raises `InputError`."""
    here, *parents = ask_git(checkout, "rev-list", "--max-count=1", "--parents", "HEAD").split()
    if here == head:
        return f"{base}..{head}"
    if parents[1:] == [head]:
        return "HEAD^1..HEAD"
    hint = "Check out what actions/checkout does by default on pull_request, or the head of the pull request."
    raise InputError(
        f"What is checked out, {here[:12]}, is neither the pull request's merge commit nor its head {head[:12]}.",
        hint=_FETCH_ALL if _is_shallow(checkout) else hint,
    )


def _is_shallow(checkout: Path) -> bool:
    return ask_git(checkout, "rev-parse", "--is-shallow-repository") == "true"


def _default_base(checkout: Path) -> str:
    """Return the main branch, unless that is what is checked out: then the commit before. Raises `InputError` for a
    repository of one commit."""
    for name in _MAIN_BRANCHES:
        beyond = ask_git(checkout, "rev-list", "--max-count=1", f"{name}..HEAD", "--", may_fail=True)
        if beyond:
            return name
    if not ask_git(checkout, "rev-parse", "--verify", "--quiet", "HEAD^", may_fail=True) and not _is_shallow(checkout):
        raise InputError(f"{checkout} has only one commit, which changes nothing.", hint="Commit the change first.")
    return "HEAD^"


def _commit(checkout: Path, name: str) -> str:
    try:
        return ask_git(checkout, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
    except BoundaryError as exc:
        raise InputError(
            f"There is no commit {shlex.quote(name)} in {checkout}.",
            hint=_FETCH_ALL if _is_shallow(checkout) else "Name the change as BASE..HEAD.",
        ) from exc


def _added_lines(hunk: str) -> str:
    """Return the lines that a hunk adds."""
    return "".join(line[1:] for line in hunk.splitlines(keepends=True) if line.startswith("+"))


def _last_line(match: re.Match[str]) -> int:
    """Return the last line of a hunk in the file as changed; 0 where it only removes lines."""
    count = 1 if match["count"] is None else int(match["count"])
    return int(match["first"]) + count - 1 if count else 0
