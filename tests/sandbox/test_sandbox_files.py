"""The tools read, write and edit (docs/threat-model.md, case 11)."""

from __future__ import annotations

import os
import stat

import pytest


@pytest.fixture
def box(cleared_box):
    return cleared_box


def put(box, name: str, content: str | bytes, mode: int = 0o644):
    """A file of the tools' own user, as an earlier tool call would have left it."""
    path = box.checkout / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
    owner = box.checkout.stat()
    os.chown(path, owner.st_uid, owner.st_gid)
    return path


def refused(result) -> str:
    assert result.is_error, result.output
    return result.output


class TestRead:
    def test_gives_the_text_as_it_is(self, box):
        put(box, "a.txt", "one\r\n\ttwo ü\nno end")
        result = box.tool("read", file_path="a.txt")
        assert (result.output, result.is_error, result.exit_code) == ("one\r\n\ttwo ü\nno end", False, None)

    @pytest.mark.sample(2)
    @pytest.mark.parametrize(
        ("view_range", "text"),
        [
            ([1, 1], "1\n"),
            ([2, 3], "2\n3\n"),
            ([3, 0], "3\n4\n"),
            ([3, -1], "3\n4\n"),
            ([4, 99], "4\n"),
            ([0, 1], "1\n"),
        ],
    )
    def test_gives_a_range_of_lines(self, box, view_range, text):
        put(box, "n.txt", "1\n2\n3\n4\n")
        assert box.tool("read", file_path="n.txt", view_range=view_range).output == text

    @pytest.mark.parametrize("view_range", [[1], "1-2", [3, 2], [1.5, 2], [True, 2]])
    def test_a_range_that_is_none_is_told(self, shared_box, view_range):
        assert "view_range" in refused(shared_box.tool("read", file_path="hello.txt", view_range=view_range))

    def test_a_large_file_is_refused_whole_and_read_in_parts(self, box):
        put(box, "big.txt", "0123456789\n" * 50_000)
        assert "view_range" in refused(box.tool("read", file_path="big.txt"))
        assert box.tool("read", file_path="big.txt", view_range=[50_000, 0]).output == "0123456789\n"
        assert "ask for fewer" in refused(box.tool("read", file_path="big.txt", view_range=[1, 50_000]))

    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("missing.txt", "does not exist"),
            ("no/folder/x", "does not exist"),
            ("hello.txt/x", "not a folder"),
            (".", "is a folder"),
            ("", "path is empty"),
            ("a\0b", "NUL"),
            (None, "file_path is missing"),
            (7, "file_path must be a string"),
        ],
    )
    def test_what_cannot_be_read_is_told(self, shared_box, path, message):
        assert message.lower() in refused(shared_box.tool("read", file_path=path)).lower()


class TestWrite:
    def test_makes_a_file_and_its_folders(self, box):
        assert box.tool("write", file_path="a/b/c.txt", content="ü\n").output == "created a/b/c.txt (3 bytes)"
        assert (box.checkout / "a/b/c.txt").read_text() == "ü\n"

    def test_replaces_what_was_there_and_keeps_the_mode(self, box):
        path = put(box, "run.sh", "old", mode=0o750)
        assert box.tool("write", file_path="run.sh", content="new").output == "replaced run.sh (3 bytes)"
        assert path.read_text() == "new"
        assert stat.S_IMODE(path.stat().st_mode) == 0o750

    @pytest.mark.parametrize("path", [".git/config", ".git/hooks/pre-commit", ".GIT/config", "sub/.git/config", ".git"])
    def test_never_writes_into_git(self, shared_box, path):
        before = (shared_box.checkout / ".git/config").read_text()
        assert ".git" in refused(shared_box.tool("write", file_path=path, content="[core]"))
        assert (shared_box.checkout / ".git/config").read_text() == before

    def test_a_link_into_git_is_seen_through(self, box):
        box.bash("ln -s .git/config innocent.txt; ln -s .git tools")
        assert "lies in .git" in refused(box.tool("write", file_path="innocent.txt", content="x"))
        assert "lies in .git" in refused(box.tool("write", file_path="tools/hooks/pre-commit", content="x"))

    @pytest.mark.parametrize(
        ("inputs", "message"),
        [
            ({"file_path": "x"}, "content is missing"),
            ({"file_path": ".", "content": ""}, "repository root"),
            ({"file_path": "hello.txt/x", "content": ""}, "not a folder"),
            ({"file_path": "x", "content": "y" * (8 * 1024 * 1024 + 1)}, "more than the 8388608"),
            ({"file_path": "x", "content": "\ud800"}, "surrogate"),
            ({"file_path": "n" * 300, "content": ""}, "too long"),
        ],
    )
    def test_what_cannot_be_written_is_told(self, shared_box, inputs, message):
        assert message in refused(shared_box.tool("write", **inputs))


class TestEdit:
    def test_replaces_the_only_occurrence(self, box):
        put(box, "a.py", "x = 1\ny = 2\n", mode=0o755)
        result = box.tool("edit", file_path="a.py", old_string="y = 2", new_string="y = 3")
        assert (result.output, result.is_error) == ("edited a.py (1 place)", False)
        assert (box.checkout / "a.py").read_text() == "x = 1\ny = 3\n"
        assert stat.S_IMODE((box.checkout / "a.py").stat().st_mode) == 0o755

    def test_several_occurrences_need_more_context_or_replace_all(self, box):
        put(box, "a.txt", "a a a")
        assert "occurs 3 times" in refused(box.tool("edit", file_path="a.txt", old_string="a", new_string="b"))
        assert (box.checkout / "a.txt").read_text() == "a a a"
        box.tool("edit", file_path="a.txt", old_string="a", new_string="b", replace_all=True)
        assert (box.checkout / "a.txt").read_text() == "b b b"

    def test_a_text_that_is_not_there_is_told_with_the_lines_that_look_like_it(self, box):
        put(box, "a.py", "import os\n\ndef greet(name):\n    return name\n")
        text = refused(box.tool("edit", file_path="a.py", old_string="def great(name):", new_string="x"))
        assert "does not occur" in text
        assert "3: def greet(name):" in text

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [("", "x", "old_string is empty"), ("hello", "hello", "the same"), ("x", None, "missing")],
    )
    def test_bad_input_is_told(self, shared_box, old, new, message):
        assert message in refused(shared_box.tool("edit", file_path="hello.txt", old_string=old, new_string=new))


def each_tool(box, path: str):
    """The three file tools on the same path."""
    yield box.tool("read", file_path=path)
    yield box.tool("write", file_path=path, content="overwritten")
    yield box.tool("edit", file_path=path, old_string="secret", new_string="overwritten")


class TestLeavingTheCheckout:
    @pytest.fixture
    def outside(self, open_folder):
        path = open_folder / "outside.txt"
        path.write_text("secret")
        path.chmod(0o666)
        return path

    def unharmed(self, outside) -> bool:
        return outside.read_text() == "secret" and outside.stat().st_mode & 0o777 == 0o666

    @pytest.mark.parametrize("path", ["../outside.txt", "{outside}", "sub/../../outside.txt"])
    def test_by_a_path_is_refused(self, box, outside, path):
        for result in each_tool(box, path.format(outside=outside)):
            assert "leads outside the repository" in refused(result)
        assert self.unharmed(outside)

    @pytest.mark.parametrize("link", ["ln -s {outside} way", "ln -s {parent} d; ln -s d/outside.txt way"])
    def test_by_a_symbolic_link_is_refused(self, box, outside, link):
        box.bash(link.format(outside=outside, parent=outside.parent))
        for result in each_tool(box, "way"):
            assert "leads outside the repository" in refused(result)
        assert self.unharmed(outside)

    def test_by_a_dangling_link_makes_no_file(self, box, outside):
        box.bash(f"ln -s {outside}.new way")
        assert "leads outside" in refused(box.tool("write", file_path="way", content="x"))
        assert not outside.with_name("outside.txt.new").exists()

    def test_by_a_hard_link_is_refused(self, box, outside):
        os.link(outside, box.checkout / "way")
        for result in each_tool(box, "way"):
            assert "2 hard links" in refused(result)
        assert self.unharmed(outside)

    def test_a_named_pipe_is_refused_and_never_waited_for(self, box):
        box.bash("mkfifo way")
        for result in each_tool(box, "way"):
            assert "named pipe" in refused(result)
            assert result.seconds < 5

    def test_a_socket_and_a_folder_are_refused(self, box):
        box.bash("mkdir folder")
        for result in each_tool(box, "folder"):
            assert "a folder" in refused(result)

    def test_a_device_is_refused(self, box):
        if os.getuid() != 0:
            pytest.skip("only root makes devices")
        try:
            os.mknod(box.checkout / "way", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("this container makes no devices")
        for result in each_tool(box, "way"):
            assert "a device" in refused(result)

    def test_a_link_that_stays_inside_is_followed(self, box):
        box.bash("mkdir sub; ln -s ../hello.txt sub/way")
        assert box.tool("read", file_path="sub/way").output == "hello\nworld\n"
        box.tool("write", file_path="sub/way", content="new\n")
        assert (box.checkout / "hello.txt").read_text() == "new\n"
        assert (box.checkout / "sub/way").is_symlink()

    @pytest.mark.whole
    def test_a_link_that_is_swapped_all_the_time_never_leads_out(self, box, outside):
        (outside.parent / "d").mkdir()
        (outside.parent / "d" / "outside.txt").write_text("secret")
        box.bash(
            f"mkdir real; echo inside > real/outside.txt; cp -r real swap\n"
            f"(while :; do rm -rf swap; ln -s {outside.parent}/d swap; rm swap; cp -r real swap; done) "
            "> /dev/null 2>&1 &"
        )
        seen = {box.tool("read", file_path="swap/outside.txt").output for _ in range(60)}
        assert not [text for text in seen if "secret" in text]


def test_half_a_surrogate_pair_in_a_path_is_told_in_text_that_can_be_stored(box):
    for result in each_tool(box, "no\ud800"):
        assert "half of a surrogate pair" in refused(result).encode().decode()
