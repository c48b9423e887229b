"""Whatever a configuration looks like: without its credentials no file holds them, and then it is as before."""

from __future__ import annotations

import base64
import shutil
import string
import tempfile
from pathlib import Path
from urllib.parse import quote

import pytest
from credentials_world import files_holding, snapshot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toolbox_world import git

from stepflow.domain.secrets import Redactor
from stepflow.sandbox.credentials.config import Setting, read_settings, write_settings
from stepflow.sandbox.credentials.stripped_credentials import find_credentials
from stepflow.sandbox.restore import credentials_stripped

#: A secret that nobody writes by chance. What real tokens consist of, and what a quoted value can hold besides.
pytestmark = pytest.mark.whole

PLAIN = st.text(string.ascii_letters + string.digits + "_-", min_size=16, max_size=40)
ODD = st.text(string.ascii_letters + string.digits + "_-\\\"'#;~ é", min_size=16, max_size=30).map(lambda t: f"x{t}x")
BLANK = st.sampled_from(["", " ", "\t", "  "])
BREAK = st.sampled_from(["\n", "\r\n"])


def cased(word: str) -> st.SearchStrategy[str]:
    """The word in any mixture of capitals and small letters."""
    return st.lists(st.booleans(), min_size=len(word), max_size=len(word)).map(
        lambda up: "".join(c.upper() if u else c.lower() for c, u in zip(word, up, strict=True))
    )


def quoted(value: str, tear: int | None) -> str:
    """A value as git reads it back, torn over two lines at some place."""
    pieces = [value] if tear is None else [value[: tear % len(value)], value[tear % len(value) :]]
    escaped = (piece.replace("\\", "\\\\").replace('"', '\\"') for piece in pieces)
    return '"' + "\\\n".join(escaped) + '"'


@st.composite
def planted(draw: st.DrawFn) -> tuple[str, str]:
    """A secret, and the text of a section that holds it."""
    secret = draw(PLAIN)
    url = quote(secret)
    form = draw(st.sampled_from(["basic", "bearer", "url", "user", "insteadof", "odd header", "smtp", "helper"]))
    if form in ("odd header", "smtp"):
        secret = draw(ODD).strip()
    section, subsection, name, value = {
        "basic": ("http", "https://h/", "extraheader", f"Authorization: basic {_basic(secret)}"),
        "bearer": ("http", None, "extraheader", f"AUTHORIZATION: bearer {secret}"),
        "url": ("remote", "origin", "url", f"https://x-access-token:{url}@h/o/r"),
        "user": ("submodule", "a/b", "url", f"https://{url}@h/o/r"),
        "insteadof": ("url", f"https://u:{url}@h/", "insteadOf", "https://h/"),
        "odd header": ("http", "https://h/", "extraheader", f"X-Key: {secret}"),
        "smtp": ("sendemail", "mine", "smtpPass", secret),
        "helper": ("credential", "https://h", "helper", f"!echo https://u:{url}@h"),
    }[form]
    heading = draw(cased(section)) + (f' "{subsection}"' if subsection is not None else "")
    tear = draw(st.none() | st.integers(1, 60))
    blank, end = draw(BLANK), draw(BREAK)
    comment = draw(st.sampled_from(["", f"# {secret}", "; nothing"])) if "\\" not in secret else ""
    line = f"{blank}{draw(cased(name))}{blank}={blank}{quoted(value, tear)}{blank}{comment}"
    return secret, f"[{heading}]{draw(st.sampled_from([end, ' ', '']))}{line}{end}"


def _basic(secret: str) -> str:
    return base64.b64encode(f"x-access-token:{secret}".encode()).decode()


@pytest.fixture(scope="module")
def repository():
    with tempfile.TemporaryDirectory() as folder:
        git(Path(folder), "init", "--quiet")
        yield Path(folder)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sections=st.lists(planted(), min_size=1, max_size=4),
    file=st.sampled_from(
        ["config", "config.worktree", "modules/m/config", "included.conf", "../left/git-credentials-x.config"]
    ),
    echo=st.sampled_from(["FETCH_HEAD", "description", "logs/refs/heads/main", "config.orig", "hooks/old", "info/x"]),
    final=st.booleans(),
)
def test_no_secret_is_left_in_any_file_and_afterwards_all_is_as_before(repository, sections, file, echo, final):
    with tempfile.TemporaryDirectory() as folder:
        checkout, left = Path(folder) / "c", Path(folder) / "c/left"
        shutil.copytree(repository, checkout)
        left.mkdir()
        secrets = [secret for secret, _ in sections]
        text = "".join(section for _, section in sections)
        config_path = checkout / ".git" / file
        config_path.parent.mkdir(parents=True, exist_ok=True)
        (config_path.parent / "HEAD").write_text("ref: refs/heads/main\n") if "modules" in file else None
        with config_path.open("a", newline="") as config:
            config.write(text if final else text.rstrip("\r\n"))
        with (checkout / ".git/config").open("a") as config:
            config.write("\n[include]\n\tpath = included.conf\n")
        (checkout / ".git" / echo).parent.mkdir(parents=True, exist_ok=True)
        (checkout / ".git" / echo).write_text(f"seen: {' '.join(secrets)}\n")
        before = snapshot(checkout)
        redact = Redactor(find_credentials(checkout, left).secrets)
        with credentials_stripped(checkout, left):
            for secret in secrets:
                forms = {secret, quote(secret), _basic(secret), secret.replace("\\", "\\\\").replace('"', '\\"')}
                assert [path for form in forms for path in files_holding(form, checkout)] == []
                assert redact(f"- {secret} -") == "- *** -"
            assert git(checkout, "config", "--get", "core.repositoryformatversion") == "0"
        assert snapshot(checkout) == before


NAME = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\n"), max_size=20)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.builds(
            Setting,
            section=st.from_regex(r"[a-z0-9-]{1,8}", fullmatch=True),
            subsection=st.none() | TEXT,
            name=NAME,
            value=st.none() | st.lists(TEXT, min_size=1, max_size=2).map("\n".join),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_what_we_write_is_what_git_reads(given_settings):
    assert read_settings(write_settings(given_settings), "here") == tuple(given_settings)
