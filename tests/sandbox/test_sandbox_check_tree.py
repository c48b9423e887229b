"""Checks see the files of the closing beside what `setup` left, and nothing else that tools have touched
(docs/threat-model.md, cases 14, 34 and 37)."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from toolbox_world import Box, git, root_only

from stepflow.domain.agent.validation import ExitCode
from stepflow.domain.checkout import CommandRequest, CommandResult, TreeState
from stepflow.engine.judge import has_passed
from stepflow.errors import InputError
from stepflow.ports import Commands
from stepflow.programs import run_program
from stepflow.run.clock import Cancellation
from stepflow.run.workspace import open_toolbox
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.check_tree import CheckTrees
from stepflow.sandbox.isolation import ToolboxOptions
from stepflow.sandbox.workspace import make_workspace


class Work:
    """Tools at work in a workspace, and the checks of closings between."""

    def __init__(self, box: Box, trees: CheckTrees, notes: list[str]) -> None:
        self.box, self.trees, self.notes = box, trees, notes

    def tools(self, script: str) -> str:
        """What a command of the tools prints."""
        ended = self.box.sh(script)
        assert ended.exit_code == 0, ended.stderr
        return ended.stdout

    def check(self, *scripts: str) -> tuple[TreeState, list[str]]:
        """A closing: the state of the workspace, and the lines that the last of these checks prints."""
        with self.trees.opened() as tree:
            ended = [run(tree, script) for script in scripts][-1]
        assert not ended.error, ended.error
        return tree.closing, ended.stdout.splitlines()

    def closing(self) -> TreeState:
        """The state of the workspace."""
        with self.trees.opened() as tree:
            return tree.closing

    def files(self) -> dict[str, str]:
        """The digest of each file that a check sees."""
        with self.trees.opened() as tree:
            run(tree, f": {os.urandom(4).hex()}")
            return digests(self.box.checkout)

    def files_of_clone(self, commit: str) -> dict[str, str]:
        """The same of a fresh checkout of the commit, and of what `setup` left among ignored files."""
        folder = self.box.checkout.parent / f"clone-{os.urandom(4).hex()}"
        self.trees.repository.check_out(commit, folder)
        return digests(folder)


def run(tree: Commands, script: str) -> CommandResult:
    return tree.run_command(CommandRequest(argv=("sh", "-c", script), timeout=60))


def digests(folder: Path) -> dict[str, str]:
    """The digest of each file's content, or where a link leads, but for git's own."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if ".git" not in name.parts and (path.is_symlink() or path.is_file()):
            content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
            found[str(name)] = hashlib.sha256(content).hexdigest()
    return found


@pytest.fixture
def work(checkout: Path) -> Iterator[Callable[..., Work]]:
    """Begins it, after a `set_up`."""
    (checkout / "lib").mkdir()
    (checkout / "lib/code.py").write_text("broken\n")
    (checkout / "lib/.gitignore").write_text("*.tmp\n")
    (checkout / ".gitignore").write_text("*.log\nbuild/\nvendor/\n__pycache__/\n")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message", "lib")
    workspace = checkout.parent / "workspace"
    opened = []

    def begin(set_up: str = "true", *, setup: str = "", keep: tuple[str, ...] = (), **options: object) -> Work:
        make_workspace(checkout, workspace)
        options = {"private_root": checkout.parent, **options}
        opened.append(Toolbox.start(workspace, options=ToolboxOptions(**options)))
        box = Box(opened[0], workspace)
        assert box.sh(set_up).exit_code == 0
        base = opened[0].tree().commit
        notes: list[str] = []
        again = (lambda commands: run(commands, setup)) if setup else None
        repository = checkout if set_up == "true" else workspace
        opened.append(CheckTrees(opened[0], repository, base=base, setup=again, keep=keep, note=notes.append))
        return Work(box, opened[1], notes)

    yield begin
    for each in reversed(opened):
        each.__exit__(None, None, None)


COMMIT = "echo new > new.py; git add -A; git commit -qm work; "
#: What tools do after a commit, so that checks see something else than is committed; and what is not committed then.
CHEATS = {
    "an edited dependency": ("echo fixed > vendor/dep.py", ()),
    "files below a folder named .git": ("mkdir -p lib/.git; echo fixed > lib/.git/code.py; mkdir empty", ()),
    "planted byte code": (
        "python3 - <<'PY'\n"
        "import importlib._bootstrap_external as b, importlib.util as u, os\n"
        "code = compile('answer = 2', 'lib/code.py', 'exec'); os.makedirs('lib/__pycache__', exist_ok=True)\n"
        "open(u.cache_from_source('lib/code.py'), 'wb').write(b._code_to_hash_pyc(code, b'x' * 8, False))\n"
        "PY\n",
        (),
    ),
    "an ignored module": ("mkdir build; echo fixed > build/code.py; echo x > a.log", ()),
    "info/exclude": ("printf 'a.py\n' >> .git/info/exclude; touch a.py", ("a.py",)),
    "flags in the index": (
        "echo x >> hello.txt; rm lib/code.py; git update-index --assume-unchanged hello.txt; git update-index "
        "--skip-worktree lib/code.py",
        ("hello.txt", "lib/code.py"),
    ),
    "configuration": (
        "git config status.showUntrackedFiles no; git config core.fileMode false; git config alias.status '!true';"
        "chmod +x hello.txt; touch a.py",
        ("hello.txt", "a.py"),
    ),
    "personal configuration": (
        "mkdir -p ~/.config/git; echo n > ~/.config/git/ignore; touch n m; git config core.excludesFile $HOME/x;"
        "printf 'm\\nn\\n' > ~/x; git config include.path $HOME/more; git config -f ~/more status.branch no",
        ("m", "n"),
    ),
    "another case of a name": ("git config core.ignoreCase true; echo x > Hello.txt", ("Hello.txt",)),
    "a .gitignore that is not committed": (
        "echo a.py >> .gitignore; git update-index --assume-unchanged .gitignore; touch a.py",
        (".gitignore",),
    ),
    "a monitor that says nothing changed": (
        "printf '#!/bin/sh\\nprintf \"t\\\\0\"\\n' > ~/mon; chmod +x ~/mon; git config core.fsmonitor ~/mon;"
        "touch -d '1 hour ago' hello.txt; git status; git update-index --fsmonitor; git status; echo x >> hello.txt",
        ("hello.txt",),
    ),
    "another work tree": ("cp -r . ~/clean; git config core.worktree ~/clean; echo x >> hello.txt", ("hello.txt",)),
    "a filter that gives back what was committed": (
        "git config filter.x.clean 'git show HEAD:%f'; echo '* filter=x' > .git/info/attributes;"
        "echo x >> hello.txt; git add hello.txt",
        ("hello.txt",),
    ),
    "a sparse checkout": (
        "git config core.sparseCheckout true; echo '/lib/' > .git/info/sparse-checkout; git read-tree -mu HEAD",
        (".gitignore", "hello.txt", "new.py", "vendor/"),
    ),
    "a replaced history": (
        "git commit -q --allow-empty -m w; echo x >> hello.txt; git add -A; git commit -qm x;"
        "evil=$(git rev-parse HEAD); git reset -q --soft HEAD^; git replace HEAD $evil",
        ("hello.txt",),
    ),
    "a name with a quote and a line break": (
        "echo '*' >> .git/info/exclude; touch \"$(printf 'a\"\\n?? b')\"",
        ('a"\\n?? b',),
    ),
    "an emptied index": ("rm .git/index; git read-tree --empty", ()),
    "a file of the same size and time": (
        "touch -r lib/code.py ~/when; printf 'wobbly\\n' > lib/code.py; touch -r ~/when lib/code.py",
        ("lib/code.py",),
    ),
    "a hook": (
        "printf '#!/bin/sh\\necho planted >&2\\ngit read-tree --empty\\n' > .git/hooks/post-index-change; "
        "chmod +x .git/hooks/post-index-change",
        (),
    ),
    "HOME and TMPDIR": (
        "mkdir -p ~/.local/lib ~/bin; echo 'raise SystemExit' > ~/usercustomize.py; echo x > $TMPDIR/conftest.py;"
        "printf '[alias]\\n\\tst = !true\\n' > ~/.gitconfig; chmod 700 ~/bin",
        (),
    ),
    "a folder that nobody may enter": ("mkdir -p ~/closed/in build; chmod 000 ~/closed build", ()),
    "a tree deeper than any path": (
        "mkdir build; cd build; python3 -c \"import os\nfor _ in range(3000): os.mkdir('d' * 50); os.chdir('d' * 50)\"",
        (),
    ),
    "an older commit": ("git checkout -q HEAD~1", ()),
    "a link to elsewhere": (
        "ln -s / build; rm -rf lib; ln -s ~ lib",
        ("lib/.gitignore", "lib/code.py", "build", "lib"),
    ),
}


def prepared(work: Callable[..., Work]) -> Work:
    return work("mkdir vendor; echo installed > vendor/dep.py; echo kept > ~/kept; echo kept > $TMPDIR/kept")


@pytest.mark.sample(8)
@pytest.mark.parametrize("cheat", CHEATS)
def test_checks_see_what_a_clone_has_and_what_git_would_list(work, cheat: str) -> None:
    script, uncommitted = CHEATS[cheat]
    begun = prepared(work)
    begun.tools(f"{COMMIT}{script}\ntrue")
    closing, said = begun.check("git status --porcelain -z | tr '\\0' '\\n' | wc -l; ls ~ $TMPDIR; cat vendor/dep.py")
    assert (closing.uncommitted, closing.problem) == (uncommitted, "")
    assert [line for line in said if "/" not in line and line] == [
        "0" if not uncommitted else said[0],
        "kept",
        "kept",
        "installed",
    ]
    files = begun.files()
    of_clone = begun.files_of_clone(closing.commit)
    differing = {name for name in files.keys() | of_clone.keys() if files.get(name) != of_clone.get(name)}
    assert differing - {"vendor/dep.py"} <= {*uncommitted, 'a"\n?? b'}


def test_what_is_not_committed_is_there_and_git_says_so(work) -> None:
    begun = work()
    begun.tools("echo x >> hello.txt; rm lib/code.py; mkdir n; echo n > n/a.py; ln -s hello.txt link")
    closing, said = begun.check("git status --porcelain; cat hello.txt n/a.py link")
    assert closing.changed == ("hello.txt", "lib/code.py")
    assert closing.untracked == ("link", "n/")
    world = ["hello", "world", "x"]
    assert said == [" M hello.txt", " D lib/code.py", "?? link", "?? n/", *world, "n", *world]
    assert closing.touched == {
        "hello.txt": "changed", "lib/code.py": "removed", "link": "added", "n/a.py": "added",
    }  # fmt: skip


def test_the_commits_and_the_branch_of_the_work_are_there(work) -> None:
    begun = work()
    begun.tools("git checkout -qb side/way; " + COMMIT)
    _, said = begun.check("git branch --show-current; git log --format=%s; git status --porcelain; git fsck")
    assert said == ["side/way", "work", "lib", "one"]


def test_tools_find_everything_of_theirs_again(work) -> None:
    begun = prepared(work)
    begun.tools("git config my.setting 1; git branch mine; echo 1 > ~/mine; echo 2 > vendor/dep.py; echo 3 > a.log")
    _, said = begun.check("git branch --list mine; git config my.setting; ls; rm -rf vendor ~/kept .git")
    assert said == ["hello.txt", "lib", "vendor"]
    told = begun.tools("git config my.setting; git branch --list mine; cat ~/mine ~/kept vendor/dep.py a.log")
    assert told.splitlines() == ["1", "  mine", "1", "kept", "2", "3"]


def test_no_check_leads_the_next_one_astray_but_what_it_builds_stays_for_the_closing(work) -> None:
    begun = prepared(work)
    begun.tools(COMMIT + "touch left.py")
    astray = (
        "echo '*.py' > .git/info/exclude; git update-index --assume-unchanged hello.txt; echo x > hello.txt; "
        "git commit -qmx --allow-empty; touch -r lib/code.py ~/when; printf wobbly > lib/code.py; "
        "touch -r ~/when lib/code.py; mkdir build; echo built > build/out; touch more.py; rm new.py"
    )
    status = "git status --porcelain; git log -1 --format=%s; cat hello.txt lib/code.py new.py; cat build/out"
    expected = ["?? left.py", "work", "hello", "world", "broken", "new"]
    assert begun.check(astray, status)[1] == [*expected, "built"]
    assert begun.check("rm -rf .git; touch .git", f": again; {status}")[1] == expected


def test_the_next_closing_meets_what_setup_left_whatever_checks_have_changed(work) -> None:
    begun = prepared(work)
    begun.check(
        "echo fixed > vendor/dep.py; touch -r ~/kept ~/when; echo lost > ~/kept; touch -r ~/when ~/kept; "
        "rm -rf $TMPDIR/kept; mkdir $TMPDIR/kept build; ln -s / ~/link; rm -rf lib; ln -s / lib"
    )
    begun.tools(COMMIT)
    _, said = begun.check("cat vendor/dep.py ~/kept $TMPDIR/kept lib/code.py; ls ~; git status --porcelain; ls")
    assert said == ["installed", "kept", "kept", "broken", "kept", "hello.txt", "lib", "new.py", "vendor"]


def test_the_tree_is_made_ready_while_tools_work(work) -> None:
    begun = prepared(work)
    begun.check("echo fixed > vendor/dep.py; rm ~/kept")
    dependency = begun.box.checkout.with_name("workspace-checks") / "vendor/dep.py"
    assert dependency.read_text() == "fixed\n"
    begun.trees.prepare()
    begun.tools("for _ in $(seq 100); do echo mine > vendor/dep.py; rm -f ~/kept; done")
    # It is gone for a moment while it is copied.
    while run_program("cat", str(dependency)).stdout != b"installed\n":
        time.sleep(0.02)
    assert begun.check("cat vendor/dep.py ~/kept; git status --porcelain")[1] == ["installed", "kept"]


@root_only
def test_checks_have_another_user_than_the_tools_and_no_memory_of_theirs(work) -> None:
    begun = work()
    user = begun.tools("mkdir /dev/shm/planted; touch /dev/shm/planted/file; id -u")
    _, said = begun.check("id -u; ls -d /dev/shm/planted; touch /dev/shm/of-a-check", "ls /dev/shm/of-a-check")
    assert said == []
    assert begun.check("id -u")[1] != user.splitlines()
    assert not os.path.lexists("/dev/shm/planted")


#: What the kernel keeps when no process is left, small enough to be allowed, and the flags that make it.
KEPT = {
    "a segment": ("shmget(77, 16, {})", 0o1666),
    "semaphores": ("semget(77, 1, {})", 0o1666),
    "a queue": ("msgget(77, {})", 0o1666),
    "a queue of POSIX": ("mq_open(b'/77', {}, 0o666, None)", os.O_CREAT | os.O_RDWR),
}


@root_only
@pytest.mark.parametrize(("call", "made_by"), KEPT.values(), ids=KEPT)
def test_nothing_that_the_kernel_keeps_passes_from_tools_to_checks_or_between_them(
    work, call: str, made_by: int
) -> None:
    begun, program = work(), 'python3 -c "import ctypes, sys; sys.exit(ctypes.CDLL(None).{} < 0)"'
    make, find = (program.format(call.format(flags)) for flags in (made_by, made_by & ~0o1666 & ~os.O_CREAT))
    begun.tools(f"umask 0; {make}; true")
    assert begun.check(f"{find} && echo found")[1] == []
    assert begun.check(f"umask 0; {make}; true", f"{find} && echo found")[1] == []


@root_only
def test_nothing_of_the_tools_stays_in_the_machines_memory(checkout: Path) -> None:
    workspace, left = checkout.parent / "workspace", Path(f"/dev/shm/left-by-{os.getpid()}")
    make_workspace(checkout, workspace)
    options = ToolboxOptions(private_root=checkout.parent)
    with open_toolbox(workspace, options, Cancellation()) as toolbox:
        assert Box(toolbox, workspace).sh(f"mkdir {left}; touch {left}/file; ls {left}").stdout == "file\n"
    assert not left.exists()


def test_nothing_of_the_tools_or_of_a_check_runs_on(work) -> None:
    begun = work()
    # Other programs of this machine may sleep too.
    own = f"5{os.getpid()}"
    begun.tools(f"(setsid sh -c 'while sleep 0.0{own}; do echo x >> hello.txt; done') > /dev/null 2>&1 &")
    start, look = f"setsid sleep 30{own} > /dev/null & sleep 0.3; ", f"pgrep -f '[s]leep [0-9.]*{own}'; true"
    assert begun.check(f"{start}pgrep -f '[s]leep 30{own}' > /dev/null && git status --porcelain && echo there")[1] == [
        "there"
    ]
    _, said = begun.check(start, look)
    assert said == []


@pytest.mark.parametrize(
    "harm", ["rm -rf .git/objects; mkdir .git/objects", "rm .git/HEAD", "rm -rf .git", "mkfifo .git/x; rm .git/index"]
)
def test_a_workspace_that_cannot_be_looked_at_fails_every_check_until_it_can(work, harm: str) -> None:
    begun = work()
    kept = begun.tools(f"cp -a .git ~/kept; {harm}; echo fine")
    with begun.trees.opened() as tree:
        assert tree.closing.problem
        assert run(tree, "true").exit_code == -1
    assert kept == "fine\n"
    begun.tools("rm -rf .git; cp -a ~/kept .git; " + COMMIT)
    assert begun.check("cat new.py")[1] == ["new"]


def test_a_commit_whose_objects_are_not_what_their_names_say_cannot_be_checked(work) -> None:
    begun = work()
    begun.tools(
        COMMIT + "name=$(git rev-parse HEAD:new.py); file=.git/objects/${name%${name#??}}/${name#??}; rm -f $file\n"
        'python3 -c \'import sys, zlib; open(sys.argv[1], "wb").write(zlib.compress(b"blob 6\\0fixed\\n"))\' $file'
    )
    assert begun.closing().problem


def test_a_tree_of_the_start_that_stands_for_other_files_is_seen_through(work) -> None:
    """Git hashes no tree that it reads, and looks at the repository's own objects before it looks at borrowed ones."""
    begun = work()
    begun.tools(
        "fixed=$(echo fixed | git hash-object -w --stdin); name=$(git rev-parse HEAD:lib)\n"
        "mkdir -p .git/objects/${name%${name#??}}\n"
        'python3 -c \'import sys, zlib; body = b"100644 code.py\\0" + bytes.fromhex(sys.argv[1]); '
        'open(sys.argv[2], "wb").write(zlib.compress(b"tree %d\\0" % len(body) + body))\' '
        "$fixed .git/objects/${name%${name#??}}/${name#??}\n"
        "echo fixed > lib/code.py\n" + COMMIT.replace("-A", "new.py")
    )
    assert begun.tools("git show HEAD:lib/code.py") == "fixed\n", "else this shows nothing"
    with begun.trees.opened() as tree:
        if not tree.closing.problem:
            assert run(tree, "git show HEAD:lib/code.py").stdout == "broken\n"
            assert tree.closing.changed == ("lib/code.py",)


ATTRIBUTES = (
    "printf '*.bat eol=crlf\\n*.txt text\\n*.u working-tree-encoding=UTF-16\\n*.id ident\\n' > .gitattributes; "
)
#: What tools write into a file that they commit, and what a clone has there: other ends of lines, another encoding, the
#: name of an object, and a program.
AS_A_CLONE_HAS = {
    "a.bat": (r"a\n", b"a\r\n"),
    "a.txt": (r"a\r\n", b"a\n"),
    "a.u": (r"\376\377\0a", "a".encode("utf-16")),
    "a.id": ("$Id$", b"$Id: b3f5ebfb5843bc43ceecff6d4f26bb37c615beb1 $"),
    "run.txt": (r"#!/bin/sh\r\n", b"#!/bin/sh\n"),
}


@pytest.mark.parametrize("rules", ["in the commit", "at the start"])
def test_checks_see_files_as_a_clone_of_the_commit_has_them(work, rules: str) -> None:
    begun = work(f"{ATTRIBUTES}git add .; git commit -qm rules" if rules == "at the start" else "true")
    writes = "; ".join(f"printf '{text}' > {name}" for name, (text, _) in AS_A_CLONE_HAS.items())
    begun.tools(f"{ATTRIBUTES}{writes}; chmod 700 run.txt; {COMMIT}")
    compared = "; ".join(f"cmp $TMPDIR/clone/{name} {name}" for name in AS_A_CLONE_HAS)
    closing, said = begun.check(
        "git diff-index HEAD; git status --porcelain; git clone -q . $TMPDIR/clone; "
        f"{compared}; find . -perm -111 -type f"
    )
    assert (closing.uncommitted, closing.problem) == ((), "")
    assert [line for line in said if ".git/" not in line] == ["./run.txt"]
    files = begun.files()
    expected = {name: hashlib.sha256(held).hexdigest() for name, (_, held) in AS_A_CLONE_HAS.items()}
    assert {name: files[name] for name in expected} == expected


class TestWhatSetupLeft:
    def test_what_it_told_git_counts(self, work) -> None:
        begun = work("git config merge.ff only; printf '#!/bin/sh\\n' > .git/hooks/pre-push; touch kept; git add kept")
        begun.tools("git config merge.ff false; rm .git/hooks/pre-push")
        _, said = begun.check("git config merge.ff; ls .git/hooks; git status --porcelain")
        assert said == ["only", "pre-push", "?? kept"]

    @pytest.mark.parametrize("setting", ["core.hooksPath .husky/_", "core.fsmonitor .husky/_/post-index-change"])
    def test_a_program_that_git_would_run_from_ignored_files_is_not_run(self, work, setting: str) -> None:
        begun = work(
            f"mkdir -p .husky/_; echo '*' > .husky/_/.gitignore; git config {setting}; "
            "printf '#!/bin/sh\\ntouch ran\\n' > .husky/_/post-index-change; chmod +x .husky/_/post-index-change"
        )
        begun.tools("git -c core.hooksPath= -c core.fsmonitor= commit -qm x --allow-empty")
        assert begun.check("touch new.py; git add new.py; git status --porcelain; ls ran")[1] == ["A  new.py"]

    def test_settings_in_other_files_do_not_count(self, work) -> None:
        included = "git config include.path ../.local; git config includeIf.gitdir:**.path ../.local"
        begun = work(
            f"{included}; printf '[status]\n\tshowUntrackedFiles = no\n' > .local; echo .local > .git/info/exclude"
        )
        begun.tools(COMMIT + "touch left.py")
        assert begun.tools("git status --porcelain") == "", "else this shows nothing"
        assert begun.check("git status --porcelain")[1] == ["?? left.py"]

    def test_a_change_to_a_tracked_file_is_not_committed(self, work) -> None:
        begun = work("echo x >> hello.txt; mkdir -p vendor/a; echo 1 > vendor/a/b; chmod 500 vendor/a")
        assert begun.closing().changed == ("hello.txt",)
        assert begun.check("git status --porcelain; cat vendor/a/b")[1] == [" M hello.txt", "1"]

    @pytest.mark.parametrize("when", ["2020-01-01", "+1 minute"])
    def test_files_of_a_filter_stay_and_changes_to_them_are_found(self, work, when: str) -> None:
        begun = work(
            "git config filter.up.clean 'tr a-z A-Z'; git config filter.up.smudge 'tr A-Z a-z'; echo abc > a.up; "
            f"echo '*.up filter=up' > .gitattributes; touch -d '{when}' a.up; git add .; git commit -qm filter"
        )
        closing, said = begun.check("cat a.up; git status --porcelain")
        assert (closing.uncommitted, said) == ((), ["abc"])
        begun.tools("git config filter.up.clean 'git show HEAD:%f'; echo def > a.up; git add a.up")
        assert begun.closing().changed == ("a.up",)

    def test_files_that_a_sparse_checkout_leaves_out_are_not_missing(self, checkout, work) -> None:
        git(checkout, "sparse-checkout", "set", "--no-cone", "/lib/")
        begun = work()
        closing, said = begun.check("git status --porcelain; ls")
        assert (closing.uncommitted, said) == ((), ["lib"])
        begun.tools("git update-index --skip-worktree lib/code.py; echo x >> lib/code.py; echo y > hello.txt")
        assert begun.closing().changed == ("hello.txt", "lib/code.py")

    def test_a_large_ignored_folder_is_left_out_and_named(self, work) -> None:
        begun = work("mkdir build; truncate -s 0 build/a; fallocate -l 1100M build/data; echo 1 > a.log")
        assert begun.trees.too_large == (Path("build"),)
        assert begun.check("ls")[1] == ["a.log", "hello.txt", "lib"]

    def test_a_large_ignored_folder_that_is_to_be_kept_is_there(self, work) -> None:
        begun = work("mkdir build; fallocate -l 1100M build/data", keep=("build/",))
        assert begun.trees.too_large == ()
        assert begun.check("ls build")[1] == ["data"]

    def test_without_a_commit_there_is_nothing_to_check(self, open_folder) -> None:
        plain = open_folder / "plain"
        plain.mkdir()
        git(plain, "init", "--quiet")
        with Toolbox.start(plain) as toolbox, pytest.raises(InputError, match="there is no commit yet"):
            CheckTrees(toolbox, plain, base="")


def test_setup_runs_again_where_a_closing_changes_what_it_reads(checkout: Path, work) -> None:
    (checkout / "package.json").write_text("1\n")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message", "manifest")
    script = "mkdir -p vendor; cp package.json vendor/installed; echo of-setup >> hello.txt; echo 1 >> ~/times"
    begun = work(script.replace("echo of-setup >> hello.txt; ", ""), setup=script)
    look = "cat vendor/installed ~/times; git status --porcelain"
    begun.tools("echo 2 > package.json; git commit -qam two; echo mine > vendor/installed")
    assert begun.check(look)[1] == ["2", "1", "1"]
    assert "[Setup] ran again for the checks, since package.json changed" in begun.notes[0]
    begun.tools("git revert --no-edit HEAD")
    assert begun.check(look)[1] == ["1", "1"]
    begun.tools("echo three > package.json; mkdir package; touch package/setup.py; echo exit 3 > more.py")
    assert begun.check(look)[1] == ["three", "1", "1", " M package.json", "?? more.py", "?? package/"]
    assert len(begun.notes) == 2


def test_what_is_to_be_kept_stays_from_one_closing_to_the_next(work) -> None:
    begun = work("mkdir build", keep=("build/",))
    begun.check("echo built > build/out; touch more.log")
    begun.tools(COMMIT + "echo mine > build/out")
    assert begun.check("cat build/out; ls")[1] == ["built", "build", "hello.txt", "lib", "new.py"]


def test_a_setup_that_fails_with_what_a_closing_changed_fails_every_check_and_says_why(work) -> None:
    begun = work(setup="test ! -e setup.py || { echo no such package; exit 3; }")
    begun.tools("touch setup.py")
    with begun.trees.opened() as tree:
        ended = [run(tree, script) for script in ("true", "echo second")]
    assert len(begun.notes) == 1
    for each in ended:
        assert "`setup`, which runs again because setup.py changed, fails with exit code 3" in each.error
        assert "no such package" in each.error
        assert not has_passed(ExitCode(code=1), each)
    begun.tools("rm setup.py")
    assert begun.check("echo fine")[1] == ["fine"]


def test_a_check_does_not_run_again_on_the_same_files(work) -> None:
    begun = work("mkdir build", keep=("build/",))
    count = "echo x >> build/runs; cat build/runs"
    assert begun.check(count)[1] == begun.check(count)[1] == ["x"]
    begun.tools("echo new > new.py")
    assert begun.check(count)[1] == ["x", "x"]
    assert begun.check("cat build/runs")[1] == ["x", "x"]
    begun.tools("git add -A; git commit -qm work")
    assert begun.check(count)[1] == ["x", "x", "x"]


def test_a_check_that_ran_out_of_time_runs_again_on_the_same_files(work) -> None:
    begun = work("mkdir build", keep=("build/",))
    for _ in range(2):
        with begun.trees.opened() as tree:
            script = ("sh", "-c", "echo x >> build/runs; sleep 60")
            assert tree.run_command(CommandRequest(argv=script, timeout=0.5)).timed_out
    assert begun.check("cat build/runs")[1] == ["x", "x"]


SET_UP = ("checked out with the repository", "by setup")


@pytest.fixture
def with_submodule(request, checkout: Path, open_folder: Path) -> str:
    """A checkout with the submodule `lib/sub`; gives what sets it up."""
    source = open_folder / "sub"
    source.mkdir()
    git(source, "init", "--quiet")
    (source / "a.txt").write_text("one\n")
    git(source, "add", "--all")
    git(source, "commit", "--quiet", "--message", "one")
    git(checkout, "-c", "protocol.file.allow=always", "submodule", "add", "--quiet", str(source), "lib/sub")
    git(checkout, "commit", "--quiet", "--message", "sub")
    if request.param == "by setup":
        git(checkout, "submodule", "deinit", "--quiet", "--force", "--all")
        shutil.rmtree(checkout / ".git/modules")
        (checkout / ".git/info/exclude").write_text("/source\n")
        source.rename(checkout / "source")
        return (
            "git config submodule.lib/sub.url $PWD/source; "
            "git -c protocol.file.allow=always submodule --quiet update --init"
        )
    return "true"


@pytest.mark.sample(2)
@pytest.mark.parametrize("with_submodule", SET_UP, indirect=True)
@pytest.mark.parametrize(
    "planted",
    [
        "git -C lib/sub update-index --assume-unchanged a.txt; echo x > lib/sub/a.txt",
        "git -C lib/sub config core.fsmonitor 'touch ~/ran #'",
        "mv lib/sub/.git ~/sub",
    ],
)
def test_a_submodule_is_as_setup_left_it(work, with_submodule: str, planted: str) -> None:
    begun = work(with_submodule)
    begun.tools(COMMIT.replace("-A", "new.py") + planted)
    _, said = begun.check("git -C lib/sub log --format=%s; cat lib/sub/a.txt; git status --porcelain; ls ~")
    assert said == ["one", "one"]
