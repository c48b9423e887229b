"""A tree that only looks clean to the checkout's own git is found out (docs/threat-model.md, case 14)."""

from __future__ import annotations

import pytest
from toolbox_world import Box, git

from stepflow.domain.checkout import GuardDiagnostics
from stepflow.sandbox.box import Toolbox
from tests.build import make_validator

pytestmark = pytest.mark.whole

GIT_CLEAN = make_validator("git-clean", "git status --porcelain", empty=True)
IN_PART = make_validator("tidy", "git status --porcelain -- src", empty=True)


class Looked:
    """A toolbox that remembers its start, and the tools' git in it."""

    def __init__(self, box: Box) -> None:
        self.box, self.guards = box, box.toolbox.guards((GIT_CLEAN, IN_PART))
        self.closing = self.guards.closing()

    def seen_by_the_checkouts_git(self) -> str:
        return self.box.sh("git status --porcelain").stdout

    def look(self, validator=GIT_CLEAN) -> GuardDiagnostics:
        """At a closing that begins now."""
        self.closing = self.guards.closing()
        return self.guards.look_again(validator, passed=True)


@pytest.fixture
def prepared(checkout, start):
    """A checkout with rules of its own: ignore files, attributes, a start's info/exclude, folders."""
    (checkout / "src").mkdir()
    (checkout / "src" / "a.py").write_text("a = 1\n")
    (checkout / "src" / ".gitignore").write_text("*.tmp\n")
    (checkout / ".gitignore").write_text("*.log\nbuild/\n")
    (checkout / ".gitattributes").write_text("*.sh text eol=lf\n")
    (checkout / ".git" / "info").mkdir(exist_ok=True)
    (checkout / ".git" / "info" / "exclude").write_text("scratch\n")
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "rules")
    return lambda: Looked(start())


CHEATS = {
    "info/exclude": (
        "printf 'new.py\\n/new/\\n' >> .git/info/exclude; mkdir new; touch new.py new/a", ("?? new.py", "?? new/"),
    ),
    "flags in the index": (
        "echo x >> hello.txt; rm src/a.py; git update-index --assume-unchanged hello.txt; git update-index "
        "--skip-worktree src/a.py", (" M hello.txt", " D src/a.py"),
    ),
    "configuration": (
        "git config status.showUntrackedFiles no; git config core.fileMode false; git config alias.status '!true';"
        "chmod +x hello.txt; touch new.py", (" M hello.txt", "?? new.py"),
    ),
    "personal configuration": (
        "mkdir -p ~/.config/git; echo n > ~/.config/git/ignore; touch n m; git config core.excludesFile $HOME/x;"
        "printf 'm\\nn\\n' > ~/x; git config include.path $HOME/more; git config -f ~/more status.branch no",
        ("?? m", "?? n"),
    ),
    "changed .gitignore that is not committed, with its change hidden": (
        "echo new.py >> .gitignore; git update-index --assume-unchanged .gitignore; touch new.py", (" M .gitignore",),
    ),
    "an ignore file that hides itself among tracked files": (
        "mkdir lib; touch lib/b.py; git add lib; git commit -qm lib; echo '*' > lib/.gitignore; touch lib/new.py",
        ("?? lib/.gitignore",),
    ),
    "a rule that the commit removed": (
        "echo 'build/' > .gitignore; git commit -qam fewer; echo '*.log' > .git/info/exclude; touch a.log",
        ("?? a.log",),
    ),
    "attributes that no commit holds and that hide themselves": (
        "echo '*.txt ident' > .gitattributes; git update-index --assume-unchanged .gitattributes;"
        "echo '$Id$' >> hello.txt; git add hello.txt; git commit -qm id; sed -i 's/.Id./$Id: evil $/' hello.txt;"
        "git add hello.txt",
        (" M .gitattributes",),
    ),
    "attributes that a committed rule ignores": (
        "echo .gitattributes > src/.gitignore; git commit -qam i; echo '* text eol=crlf' > src/.gitattributes;"
        "sed -i 's/$/\\r/' src/a.py; git add src/a.py", ("?? src/.gitattributes",),
    ),
    "an ignored ignore file": (
        "echo .gitignore > src/.gitignore; mkdir src/b; touch src/b/a; git add --all; git commit -qm b;"
        "echo new.py > src/b/.gitignore; touch src/b/new.py", ("?? src/b/.gitignore",),
    ),
    "core.fsmonitor that says nothing changed": (
        "printf '#!/bin/sh\\nprintf \"t\\\\0\"\\n' > ~/mon; chmod +x ~/mon; git config core.fsmonitor ~/mon;"
        "touch -d '1 hour ago' hello.txt; git status; git update-index --fsmonitor; git status;"
        "echo x >> hello.txt", (" M hello.txt",),
    ),
    "core.worktree": (
        "cp -r . ~/clean; git config core.worktree ~/clean; echo x >> hello.txt; touch new.py",
        (" M hello.txt", "?? new.py"),
    ),
    "a filter that gives back what was committed": (
        "git config filter.x.clean 'git show HEAD:%f'; echo '* filter=x' > .git/info/attributes;"
        "echo x >> hello.txt; git add hello.txt", (" M hello.txt",),
    ),
    "sparse checkout": (
        "git config core.sparseCheckout true; echo '/src/' > .git/info/sparse-checkout;"
        "git status; git read-tree -mu HEAD", (" D .gitattributes", " D .gitignore", " D hello.txt"),
    ),
    "an untracked cache": (
        "git config core.untrackedCache true; git status; git update-index --force-untracked-cache; git status;"
        "echo new.py > .git/info/exclude; touch new.py", ("?? new.py",),
    ),
    "a tracked folder made a repository": (
        "git init -q src; echo 'b.py' >> .git/info/exclude; touch src/b.py; echo x >> src/a.py;"
        "git update-index --assume-unchanged src/a.py", (" M src/a.py", "?? src/b.py"),
    ),
    "replaced history": (
        "git commit -q --allow-empty -m w; echo x >> hello.txt; git add -A; git commit -qm x;"
        "evil=$(git rev-parse HEAD); git reset -q --soft HEAD^; git replace HEAD $evil", (" M hello.txt",),
    ),
    "a name with a quote and a line break": (
        "echo '*' >> .git/info/exclude; touch \"$(printf 'a\"\\n?? b')\"", ('?? "a\\042\\012?? b"',),
    ),
}  # fmt: skip


@pytest.mark.sample(8)
@pytest.mark.parametrize(("cheat", "hidden"), CHEATS.values(), ids=CHEATS)
def test_what_hides_a_change_from_git_does_not_hide_it_from_the_engine(prepared, cheat, hidden):
    looked = prepared()
    looked.box.sh(f"{cheat}\ntrue")
    assert looked.seen_by_the_checkouts_git() == ""
    look = looked.look()
    assert (look.problem, look.hidden) == ("", hidden)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("work", "notes"),
    [
        ("echo x > a.log; mkdir build; touch build/out scratch src/x.tmp", 0),
        ("git rm -q --cached hello.txt; git add hello.txt; touch hello.txt", 0),
        ("mkdir .cache; echo '*' > .cache/.gitignore; touch .cache/data", 1),
        ("for tool in pytest ruff mypy; do mkdir -p .${tool}_cache src/.${tool}_cache; done;"
         "for cache in .*_cache src/.*_cache; do echo '*' > $cache/.gitignore; touch $cache/data; done", 0),
        ("mkdir n; echo '*.o' > n/.gitignore; git add -A; git commit -qm n; touch n/a.o", 0),
        ("echo dist/ >> .gitignore; git commit -qam a; git commit -q --allow-empty -m b; mkdir dist; touch dist/a;"
         "echo '*' > dist/.gitignore", 0),
        ("printf '*\\n!*.py\\n' > .gitignore; git commit -qam ignore; touch new.txt", 0),
        ("git mv src/.gitignore .gitignore2; git rm -q .gitignore; git mv .gitignore2 .gitignore; git commit -qm moved;"
         "touch b.tmp", 0),
        ("printf 'a/**\\n!a/keep/\\n' > .gitignore; mkdir -p a/b/c; git commit -qam deep; touch a/b/c/d", 0),
        ("echo '* text=auto eol=crlf' > .gitattributes; git add -A; git commit -qm eol;"
         "printf 'hello\\r\\nworld\\r\\n' > hello.txt; git add hello.txt", 0),
        ("echo '* text=auto' > .gitattributes; git add -A; git commit -qm auto; "
         "sed -i 's/$/\\r/' hello.txt; git add .", 0),
        ("echo '*.u working-tree-encoding=UTF-16' >> .gitattributes; echo x | iconv -t UTF-16 > a.u; git add -A;"
         "git commit -qm u", 0),
        ("echo '*.txt ident' >> .gitattributes; echo '$Id$' >> hello.txt; git add -A; git commit -qm id;"
         "rm hello.txt; git checkout -q hello.txt; echo more >> hello.txt; git commit -qam more", 0),
        ("mkdir -p n/m; echo '*' > n/m/.gitignore; touch n/m/a n/b.py; git add n/b.py; git commit -qm n", 1),
    ],
    ids=[
        "ignored before", "touched", "a cache of any tool", "caches of the usual tools", "a new folder's ignore file",
        "a folder that a new rule names", "exceptions", "a moved ignore file", "a rule with a folder", "line endings",
        "ends of lines that git lets be", "an encoding", "an object's name that is out of date",
        "a cache in a new folder with a commit",
    ],
)  # fmt: skip
def test_what_only_committed_rules_or_new_folders_ignore_files_hide_is_no_fault(prepared, work, notes):
    looked = prepared()
    looked.box.sh(work)
    assert looked.seen_by_the_checkouts_git() == ""
    look = looked.look()
    assert (look.problem, look.hidden, len(look.notes)) == ("", (), notes)


@pytest.mark.parametrize("harm", ["rm -rf .git/objects; mkdir .git/objects", "rm .git/HEAD", "chmod 000 $TMPDIR"])
def test_a_git_that_cannot_be_asked_is_a_problem_and_not_a_clean_tree(prepared, harm):
    looked = prepared()
    looked.box.sh(harm)
    assert "git could not be asked before the checks: " in looked.look().problem
    assert looked.box.sh("echo fine").stdout == "fine\n"


class TestTheNameOfAnObject:
    """Git lets anything stand between `$Id:` and `$`, where attributes say `ident`."""

    CODE = "echo '*.txt ident' >> .gitattributes; echo '$Id$' >> hello.txt; git add -A; git commit -qm ident"
    PLANT = "sed -i 's/.Id./$Id: evil $/' hello.txt; git add hello.txt"

    def test_is_what_a_clone_has_there(self, prepared):
        looked = prepared()
        looked.box.sh(f"{self.CODE}; {self.PLANT}")
        assert looked.seen_by_the_checkouts_git() == ""
        assert looked.look().hidden == ()
        assert (looked.box.checkout / "hello.txt").read_text().startswith("hello\nworld\n$Id: d0ed998a15fdb4")

    def test_that_cannot_be_written_is_a_change(self, prepared):
        looked = prepared()
        looked.box.sh("mkdir d; git mv hello.txt d; ln -s d/hello.txt .")
        looked.box.sh(f"{self.CODE}; {self.PLANT.replace('hello', 'd/hello')}; chmod 555 d")
        looked.look()
        assert looked.closing.changed == ("d/hello.txt",)

    def test_that_a_check_changes_is_told(self, prepared):
        looked = prepared()
        looked.box.sh(self.CODE)
        looked.look()
        looked.box.sh(self.PLANT.replace("Id./", "Id:.*/"))
        assert looked.guards.look_again(GIT_CLEAN, passed=True).moved == ("hello.txt",)


class TestAStartThatIsNotClean:
    def test_an_ignore_file_that_no_commit_held_counts_as_it_was(self, checkout, prepared):
        looked_at = checkout / "src" / "b"
        looked_at.mkdir(exist_ok=True, parents=True)
        (looked_at / "b.py").write_text("b = 1\n")
        git(checkout, "add", "--all")
        git(checkout, "commit", "--quiet", "--message", "b")
        (looked_at / ".gitignore").write_text(".gitignore\n*.pyi\n")
        looked = prepared()
        looked.box.sh("touch src/b/b.pyi")
        assert looked.look().hidden == ()
        looked.box.sh("echo new.py >> src/b/.gitignore; touch src/b/new.py")
        assert looked.seen_by_the_checkouts_git() == ""
        assert looked.look().hidden == ("?? src/b/.gitignore",)

    def test_files_that_a_sparse_checkout_leaves_out_are_not_missing(self, checkout, prepared):
        git(checkout, "status")
        git(checkout, "sparse-checkout", "set", "--no-cone", "/src/")
        looked = prepared()
        assert looked.look().hidden == ()
        looked.box.sh("git update-index --skip-worktree src/a.py; echo x >> src/a.py; echo y > hello.txt")
        assert looked.look().hidden == (" M hello.txt", " M src/a.py")

    def test_filters_of_the_start_are_used_and_changes_below_them_found(self, checkout, prepared):
        git(checkout, "config", "filter.up.clean", "tr a-z A-Z")
        (checkout / ".gitattributes").write_text("*.up filter=up\n")
        (checkout / "a.up").write_text("abc\n")
        git(checkout, "add", "--all")
        git(checkout, "commit", "--quiet", "--message", "filter")
        looked = prepared()
        assert looked.look().hidden == ()
        looked.box.sh("git config filter.up.clean 'git show HEAD:%f'; echo def > a.up; git add a.up")
        assert looked.seen_by_the_checkouts_git() == ""
        assert looked.look().hidden == (" M a.up",)

    def test_a_folder_without_a_commit_is_not_judged(self, open_folder):
        plain = open_folder / "plain"
        plain.mkdir()
        with Toolbox.start(plain) as toolbox:
            (note,) = Looked(Box(toolbox, plain)).look().notes
        assert "not a git repository" in note


def test_nothing_is_hidden_from_a_red_validator(prepared):
    looked = prepared()
    looked.box.sh("echo new.py > .git/info/exclude; touch new.py")
    assert looked.guards.look_again(GIT_CLEAN, passed=False).hidden == ()


class TestSubmodules:
    """A checkout with the submodule `lib`, which has two commits more than the one that is checked out."""

    NEWER = "git -C lib checkout -q newer"

    @pytest.fixture
    def with_submodule(self, checkout, open_folder, start):
        lib = open_folder / "lib"
        lib.mkdir()
        git(lib, "init", "--quiet")
        (lib / "a.txt").write_text("one\n")
        git(lib, "add", "--all")
        git(lib, "commit", "--quiet", "--message", "one")
        git(checkout, "-c", "protocol.file.allow=always", "submodule", "add", "--quiet", str(lib), "lib")
        git(checkout, "commit", "--quiet", "--message", "lib")
        inner = checkout / "lib"
        git(inner, "checkout", "--quiet", "-b", "newer")
        (inner / "a.txt").write_text("two\n")
        (inner / "b.txt").write_text("more\n")
        git(inner, "add", "--all")
        git(inner, "commit", "--quiet", "--message", "two")
        git(inner, "checkout", "--quiet", "-")
        return lambda: Looked(start())

    @pytest.mark.parametrize(
        "work",
        [
            f"{NEWER}; git add lib; git commit -qm newer",
            f"{NEWER}; echo three > lib/a.txt; git -C lib commit -qam three; git add lib; git commit -qm newer",
            "git rm -q lib; git commit -qm removed; rm -rf lib",
            "git mv lib moved; git commit -qm moved",
            f"{NEWER}; git -C lib checkout -q -",
        ],
        ids=["a newer commit", "a commit of its own", "removed", "moved", "there and back"],
    )
    def test_what_the_commit_says_of_it_is_no_fault(self, with_submodule, work):
        looked = with_submodule()
        looked.box.sh(work)
        assert looked.seen_by_the_checkouts_git() == ""
        look = looked.look()
        assert (look.problem, look.hidden, looked.closing.changed) == ("", (), ())

    def test_an_untracked_file_in_it_is_one(self, with_submodule):
        looked = with_submodule()
        looked.box.sh("echo '*.log' > lib/.git/info/exclude; touch lib/new.py lib/a.log")
        assert looked.guards.closing().untracked == ("lib/a.log", "lib/new.py")

    @pytest.mark.parametrize(
        ("cheat", "hidden"),
        [
            ("git -C lib update-index --assume-unchanged a.txt; echo x > lib/a.txt", (" M lib/a.txt",)),
            ("echo x > lib/a.txt; mv lib/.git ~/lib", (" M lib",)),
            (
                "echo x > lib/a.txt; cd lib; git read-tree --empty; git add .; forged=$(git write-tree);"
                "tree=$(git rev-parse HEAD^{tree}); git read-tree HEAD; objects=$(git rev-parse --git-path objects);"
                "rm -f $objects/${tree%${tree#??}}/${tree#??}; cp $objects/${forged%${forged#??}}/${forged#??} "
                "$objects/${tree%${tree#??}}/${tree#??}; git reset -q",
                (" M lib",),
            ),
            (
                f"{NEWER}; git add lib; git commit -qm newer;"
                "git -C lib update-index --assume-unchanged a.txt; echo x > lib/a.txt",
                (" M lib/a.txt",),
            ),
        ],
        ids=["at the start's commit", "without its repository", "with a forged tree", "at a newer commit"],
    )
    def test_what_is_hidden_in_it_is_found(self, with_submodule, cheat, hidden):
        looked = with_submodule()
        looked.box.sh(f"{cheat}\ntrue")
        assert looked.seen_by_the_checkouts_git() == ""
        assert looked.look().hidden == hidden
