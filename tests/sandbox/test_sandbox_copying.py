"""What a workspace has of a checkout: how large it is, what stays out by name, and what was only installed."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from stepflow.errors import InputError
from stepflow.sandbox import copying
from stepflow.sandbox.copying import copied_files
from stepflow.sandbox.workspace import make_workspace
from tests.checkout import git

SECRET = "canary-of-a-secret"
#: What a developer's checkout has beside the files of the commit.
IGNORED = (
    *(".env", ".netrc", ".git-credentials", "settings/local.toml", "data/weights.bin", "dist/app.js", ".direnv/notes"),
    *("vendored/.env", "module/.env"),
)
INSTALLED = (
    *(".venv/pyvenv.cfg", ".venv/bin/tool", "node_modules/.bin/tool", "vendor/bundle/gem.rb", "target/debug/app"),
    *("packages/a/node_modules/b/index.js", ".tox/py3/pyvenv.cfg", "src/fast.so", "src/_version.py"),
    *(
        "src/app.egg-info/PKG-INFO",
        ".direnv/python/pyvenv.cfg",
        "prefix/conda-meta/history",
        "module/node_modules/c.js",
    ),
)
LOGINS_THERE = (
    *(".venv/pip.conf", "node_modules/.npmrc", "vendor/bundle/.env", "node_modules/.env.local", "prefix/.condarc"),
    *(".m2/settings.xml", ".gradle/gradle.properties", ".cache/composer/auth.json", ".yarn/.yarnrc.yml"),
)
RULES = "\n".join((*(f"/{name}" for name in IGNORED if "/" not in name), "*.so", "*.egg-info", "_version.py")) + (
    "\n/settings\n/data\n/dist\n.direnv\n.venv\nnode_modules\nvendor\ntarget\n.tox\n/prefix\n.env\n"
    ".m2\n.gradle\n.cache\n.yarn\n.bundle\n"
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a submodule, and what somebody who works there has installed and written beside."""
    module, folder = tmp_path / "origin", tmp_path / "checkout"
    for each in (module, folder):
        each.mkdir()
        git("init", "--quiet", "--template=", cwd=each)
        (each / ".gitignore").write_text(RULES)
        (each / "README").write_text("read me\n")
        (each / "src").mkdir()
        (each / "src/app.c").write_text("int main;\n")
        git("add", "--all", cwd=each)
        git("commit", "--quiet", "--message", "Begin", cwd=each)
    allowed = ("-c", "protocol.file.allow=always")
    git(*allowed, "submodule", "--quiet", "add", str(module), "module", cwd=folder)
    git("commit", "--quiet", "--message", "Take the module in", cwd=folder)
    for name in (*IGNORED, *INSTALLED, *LOGINS_THERE, "new.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{SECRET}\n")
    return folder


def files_of(folder: Path) -> set[str]:
    names = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    return {str(name) for name in names if ".git" not in name.parts}


def test_a_copy_has_everything(checkout: Path) -> None:
    workspace = checkout.parent / "workspace"
    make_workspace(checkout, workspace)
    assert files_of(workspace) == files_of(checkout)


def test_only_what_was_installed_comes_along_with_what_git_tracks(checkout: Path) -> None:
    workspace = checkout.parent / "workspace"
    files = copied_files(checkout, only_installed=True)
    make_workspace(checkout, workspace, files=files)
    tracked = {".gitignore", ".gitmodules", "README", "src/app.c"}
    tracked |= {f"module/{name}" for name in (".gitignore", "README", "src/app.c")}
    assert files_of(workspace) == {*tracked, *INSTALLED}
    assert (workspace / "module/.git/HEAD").exists()
    said = files.describe_withheld()
    assert ".env" in said
    assert ".git-credentials" in said
    assert ".venv" not in said


def test_bundler_finds_its_gems_without_its_logins(checkout: Path) -> None:
    harmless = '---\nBUNDLE_PATH: "vendor/bundle"\nBUNDLE_WITHOUT: "production:staging"\n'
    for folder in (".bundle", "vendor/engine/.bundle"):
        (checkout / folder).mkdir(parents=True)
        (checkout / folder / "config").write_text(
            f'{harmless}BUNDLE_GEMS__EXAMPLE__COM: "somebody:{SECRET}"\n'
            f'BUNDLE_MIRROR__ALL: "https://somebody:{SECRET}@example.com"\nBUNDLE_PATH__COM: "{SECRET}"\n'
            f'BUNDLE_GITHUB__COM:\n- "{SECRET}"\n'
        )
    workspace = checkout.parent / "workspace"
    make_workspace(checkout, workspace, files=copied_files(checkout, only_installed=True))
    kept = {path.relative_to(workspace): path.read_text() for path in workspace.rglob(".bundle/config")}
    assert kept == {Path(".bundle/config"): harmless, Path("vendor/engine/.bundle/config"): harmless}


@pytest.mark.parametrize("only_installed", [False, True])
def test_packages_that_npm_links_from_beside_the_checkout_come_along(checkout: Path, only_installed: bool) -> None:
    beside = checkout.parent / "shared"
    beside.mkdir()
    git("init", "--quiet", cwd=beside)
    (beside / "index.js").write_text("\n")
    (checkout / "node_modules/@ours").mkdir()
    (checkout / "node_modules/shared").symlink_to("../../shared")
    (checkout / "node_modules/@ours/shared").symlink_to(beside)
    (checkout / "node_modules/top").symlink_to("../..")
    (checkout / "node_modules/inside").symlink_to("../src")
    workspace, trial = checkout.parent / "deep/er/workspace", checkout.parent / "deep/er/trial"
    workspace.parent.mkdir(parents=True)
    trial.mkdir()
    files = copied_files(checkout, only_installed=only_installed)
    make_workspace(checkout, workspace, files=files)
    files.copy_dependencies(trial)
    for modules in (workspace / "node_modules", trial / "node_modules"):
        for package in ("shared", "@ours/shared"):
            assert [path.name for path in (modules / package).iterdir()] == ["index.js"]
            assert not (modules / package).is_symlink()
        assert (modules / "inside").readlink() == Path("../src")
        assert (modules / "top").is_symlink()
        assert (modules / ".bin/tool").exists()


def test_an_environment_may_be_called_like_a_file_with_logins(checkout: Path) -> None:
    (checkout / ".env").unlink()
    for name in (".env", ".env.py3"):
        (checkout / name).mkdir()
        (checkout / name / "pyvenv.cfg").write_text("")
    workspace = checkout.parent / "workspace"
    make_workspace(checkout, workspace, files=copied_files(checkout, only_installed=True))
    assert {".env/pyvenv.cfg", ".env.py3/pyvenv.cfg"} <= files_of(workspace)


def test_what_git_tracks_is_no_environment_whatever_marks_it(checkout: Path) -> None:
    """Who sends a change would else decide what the tools may read."""
    home = checkout.parent / "home/bin"
    home.mkdir(parents=True)
    for name in ("env", ".venv"):
        (checkout / name / "bin").mkdir(parents=True, exist_ok=True)
        (checkout / name / "bin/python").symlink_to(home / "python")
        git("add", "--force", f"{name}/bin/python", cwd=checkout)
    (checkout / "env/pyvenv.cfg").write_text(f"home = {home}\n")
    git("add", "--force", "env/pyvenv.cfg", cwd=checkout)
    (checkout / "linked").symlink_to(checkout.parent / "home")
    (checkout.parent / "home/pyvenv.cfg").write_text(f"home = {home}\n")
    git("add", "linked", cwd=checkout)
    installed = copied_files(checkout).installed
    assert not {Path("env"), Path(".venv"), Path("linked")} & {*installed.environments}
    assert home not in installed.interpreters


def test_an_ignored_folder_is_left_out_by_its_name(checkout: Path) -> None:
    workspace = checkout.parent / "workspace"
    for name in ("data", "packages/a/node_modules/", ".direnv/notes"):
        git("config", "--add", "stepflow.leaveOut", name, cwd=checkout)
    make_workspace(checkout, workspace)
    gone = {"data/weights.bin", "packages/a/node_modules/b/index.js", ".direnv/notes"}
    assert files_of(workspace) == files_of(checkout) - gone
    assert git("status", "--porcelain", cwd=workspace) == git("status", "--porcelain", cwd=checkout)


@pytest.mark.parametrize("name", ["README", "module", "..", "/etc", ".git/config", "."])
def test_what_git_tracks_cannot_be_left_out(checkout: Path, name: str) -> None:
    git("config", "--add", "stepflow.leaveOut", name, cwd=checkout)
    with pytest.raises(InputError, match=r"stepflow\.leaveOut"):
        copied_files(checkout)


def test_a_large_copy_is_announced_with_size_time_and_the_way_out(checkout: Path, monkeypatch) -> None:
    assert copied_files(checkout).announce(checkout.parent) == ""
    name = "big\ndata \x1b[31m"
    (checkout / name).mkdir()
    (checkout / name / "weights").write_bytes(os.urandom(64 << 20))
    monkeypatch.setattr(copying, "_BYTES_PER_SECOND", 4 << 20)
    said = copied_files(checkout).announce(checkout.parent)
    assert said.isprintable()
    assert "64 MiB in" in said
    assert "3 times: about 48 s" in said
    command = said.partition("To leave one out: ")[2]
    subprocess.run(["bash", "-c", command], cwd=checkout, check=True)
    assert copied_files(checkout).announce(checkout.parent) == ""
    assert git("config", "stepflow.leaveOut", cwd=checkout).rstrip("\n") == name
    assert shlex.split(command)[:3] == ["git", "config", "--add"]


def test_only_what_is_large_and_was_not_installed_is_proposed_to_be_left_out(checkout: Path, monkeypatch) -> None:
    (checkout / "small").write_text("1")
    (checkout / "node_modules/large").mkdir(parents=True)
    (checkout / "node_modules/large/index.js").write_bytes(os.urandom(8 << 20))
    monkeypatch.setattr(copying, "_BYTES_PER_SECOND", 1 << 20)
    said = copied_files(checkout).announce(checkout.parent)
    assert said.endswith("Not tracked by git: node_modules (8 MiB).")


def test_the_size_is_that_of_the_files_without_git(checkout: Path) -> None:
    (checkout / "large").write_bytes(os.urandom(3 << 20))
    (checkout / ".git/large").write_bytes(os.urandom(9 << 20))
    assert 3 << 20 <= copied_files(checkout).size < 4 << 20
