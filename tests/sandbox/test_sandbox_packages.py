"""Packages come from the system's own apt-get, called by the parent with checked names and an empty environment."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stepflow.errors import InputError
from stepflow.sandbox.environment import check_packages, install_packages


def fake_apt(folder: Path, script: str) -> tuple[str, ...]:
    """A program called apt-get that does as told; the path on which it comes first."""
    folder.mkdir(exist_ok=True)
    program = folder / "apt-get"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return (str(folder), "/usr/bin", "/bin")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "called"


def test_the_lists_are_updated_and_then_the_packages_installed(tmp_path: Path, log: Path) -> None:
    path = fake_apt(tmp_path / "bin", f'echo "$@" >> {log}; echo "did $1"; echo "warned" >&2')
    result = install_packages(("shellcheck", "g++"), path=path, timeout=60)
    assert log.read_text().splitlines() == ["update", "install -y --no-install-recommends -- shellcheck g++"]
    assert result.exit_code == 0
    assert result.stdout == "did update\nwarned\ndid install\nwarned\n"


def test_apt_get_sees_an_environment_built_from_nothing(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INPUT_GITHUB-TOKEN", "ghs_secret")
    path = fake_apt(tmp_path / "bin", f"env > {log}; pwd >> {log}")
    install_packages(("a",), path=path, timeout=60)
    names = {line.partition("=")[0] for line in log.read_text().splitlines()}
    assert names <= {"PATH", "DEBIAN_FRONTEND", "LC_ALL", "PWD", "SHLVL", "_", "/"}
    assert "ghs_secret" not in log.read_text()


def test_apt_get_goes_through_the_proxy(tmp_path: Path, log: Path) -> None:
    path = fake_apt(tmp_path / "bin", f'echo "$http_proxy $NO_PROXY" >> {log}')
    install_packages(
        ("a",), path=path, timeout=60, proxies={"http_proxy": "http://proxy:3128", "NO_PROXY": ".internal"}
    )
    assert log.read_text() == "http://proxy:3128 .internal\n" * 2


def test_a_failed_update_installs_nothing(tmp_path: Path, log: Path) -> None:
    path = fake_apt(tmp_path / "bin", f'echo "$1" >> {log}; echo "E: no mirror"; exit 100')
    result = install_packages(("a",), path=path, timeout=60)
    assert (result.exit_code, result.stdout) == (100, "E: no mirror\n")
    assert log.read_text() == "update\n"


@pytest.mark.whole
def test_what_takes_too_long_is_ended_with_all_its_children(tmp_path: Path, log: Path) -> None:
    path = fake_apt(tmp_path / "bin", f"sleep 60 & echo $! > {log}; wait")
    began = time.monotonic()
    result = install_packages(("a",), path=path, timeout=2)
    assert time.monotonic() - began < 10
    assert result.exit_code == -signal.SIGKILL
    assert "took too long" in result.stdout
    assert is_gone(int(log.read_text()))


def test_an_interrupted_installation_leaves_no_process_behind(tmp_path: Path, log: Path) -> None:
    path = fake_apt(tmp_path / "bin", f"sleep 60 & echo $! > {log}; wait")
    # A shell may have started these tests deaf to SIGINT.
    listens = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    call = f"install_packages(('a',), path={path!r}, timeout=60)"
    program = f"{listens}; from stepflow.sandbox.environment import install_packages; {call}"
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL) as parent:
        until = time.monotonic() + 20
        while not (log.exists() and log.read_text().strip()) and time.monotonic() < until:
            time.sleep(0.02)
        parent.send_signal(signal.SIGINT)
        parent.wait(timeout=10)
    assert is_gone(int(log.read_text()))


def is_gone(pid: int) -> bool:
    """True when the process ends within a moment, or has nobody left but its corpse."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(
    "name",
    ["-o=Dpkg::Pre-Invoke=x", "Upper", "a b", "./x.deb", "", "a\n", "bash-"],
)
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="apt-packages"):
        check_packages((name,), uid=0)


def test_without_root_the_message_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not root"):
        check_packages(("jq",), path=fake_apt(tmp_path / "bin", "true"), uid=1000)


def test_without_apt_get_the_message_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no apt-get"):
        check_packages(("jq",), path=(str(tmp_path),), uid=0)
