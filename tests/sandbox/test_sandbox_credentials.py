"""The checkout's credentials in every form are found, taken away, and given back byte for byte (security.md case 2)."""

from __future__ import annotations

import base64
import os
import signal
import threading
from pathlib import Path

import pytest
from credentials_world import HEADER, PAYLOAD, TOKEN, append, files_holding, persist_as_v5, persist_as_v6, snapshot
from toolbox_world import Box, git, root_only, run_as_other_user

from stepflow.domain.secrets import Redactor
from stepflow.errors import IsolationError, RunCancelled
from stepflow.run.clock import Cancellation
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.credentials.stripped_credentials import find_credentials
from stepflow.sandbox.restore import credentials_stripped

PASSWORD = "pass%2Fword-of-a-test"


def listed(checkout: Path) -> str:
    """All that git says about its configuration in this checkout."""
    return git(checkout, "config", "--list", "--show-origin", "--local")


class TestForms:
    def test_a_header_in_the_configuration_as_checkout_wrote_it_up_to_version_5(self, checkout, temp):
        persist_as_v5(checkout)
        git(checkout, "status")
        before = snapshot(checkout, temp)
        survey = find_credentials(checkout, temp)
        assert {TOKEN, PAYLOAD, f"x-access-token:{TOKEN}"} <= set(survey.secrets)
        assert snapshot(checkout, temp) == before
        with credentials_stripped(checkout, temp) as stripped:
            assert stripped.state == survey.state == "1 taken out of .git/config"
            assert files_holding(PAYLOAD, checkout, temp) == []
            assert "extraheader" not in listed(checkout)
            assert git(checkout, "status", "--porcelain") == ""
        assert snapshot(checkout, temp) == before
        assert stripped.notes == ()

    def test_a_file_in_runner_temp_that_includes_lead_to_as_from_version_6_on(self, checkout, temp):
        file = persist_as_v6(checkout, temp)
        file.chmod(0o600)
        before = snapshot(checkout, temp)
        assert TOKEN in find_credentials(checkout, temp).secrets
        with credentials_stripped(checkout, temp) as stripped:
            assert stripped.state == "1 taken out of runner_temp"
            assert files_holding(PAYLOAD, checkout, temp) == []
            assert "include" not in listed(checkout)
            assert file.read_bytes() == b""
        assert snapshot(checkout, temp) == before

    def test_such_a_file_that_nothing_includes(self, checkout, temp):
        file = persist_as_v6(checkout, temp)
        git(checkout, "config", "--remove-section", f"includeIf.gitdir:{checkout}/.git")
        with credentials_stripped(checkout, temp):
            assert file.read_bytes() == b""
        assert PAYLOAD in file.read_text()

    def test_includes_of_includes_in_a_circle_with_relative_and_missing_targets(self, checkout, temp):
        append(checkout, "[Include]\n\tPATH = first.conf\n[include]\n\tpath = nowhere.conf\n\tpath = ~nobody/x\n")
        (checkout / ".git/first.conf").write_text("[include]\n path = parts/second.conf\n")
        (checkout / ".git/parts").mkdir()
        (checkout / ".git/parts/second.conf").write_text(f"[include]\npath=../first.conf\n[http]extraHeader={HEADER}\n")
        before = snapshot(checkout)
        with credentials_stripped(checkout, temp) as stripped:
            assert stripped.state == "1 taken out of .git/parts/second.conf"
            assert files_holding(PAYLOAD, checkout) == []
            assert 'path = "first.conf"' in (checkout / ".git/config").read_text()
            (checkout / ".git/parts/second.conf").write_text("[core]\n\tfsmonitor = evil\n")
        assert snapshot(checkout) == before

    def test_a_benign_include_inside_stays_and_one_outside_goes(self, checkout, temp):
        (checkout / "shared.conf").write_text("[pull]\n\trebase = true\n")
        outside = temp / "other.conf"
        outside.write_text("[push]\n\tdefault = current\n")
        append(checkout, f"[include]\n\tpath = ../shared.conf\n\tpath = {outside}\n")
        with credentials_stripped(checkout, temp) as stripped:
            assert stripped.state == "none found"
            assert "pull.rebase=true" in git(checkout, "config", "--list", "--includes", "--local")
            assert str(outside) not in (checkout / ".git/config").read_text()
            assert outside.read_text() == "[push]\n\tdefault = current\n"

    def test_an_include_below_home(self, checkout, temp, monkeypatch):
        monkeypatch.setenv("HOME", str(temp))
        (temp / "mine.conf").write_text(f"[http]\n\textraheader = X-Token: {TOKEN}\n")
        append(checkout, "[include]\n\tpath = ~/mine.conf\n")
        assert find_credentials(checkout, temp).secrets == (TOKEN,)
        with credentials_stripped(checkout, temp):
            assert files_holding(TOKEN, temp) == []
        assert TOKEN in (temp / "mine.conf").read_text()

    def test_on_a_persons_own_machine_files_outside_stay_but_are_known_and_not_included(self, checkout, temp):
        file = persist_as_v6(checkout, temp)
        assert TOKEN in find_credentials(checkout).secrets
        with credentials_stripped(checkout) as stripped:
            assert PAYLOAD in file.read_text()
            assert "include" not in listed(checkout)
            assert stripped.state.startswith("1 ")

    @pytest.mark.parametrize(
        ("key", "value", "expected", "secret"),
        [
            ("remote.o.url", f"https://x-access-token:{TOKEN}@h/o/r.git", "https://h/o/r.git", TOKEN),
            ("remote.o.url", f"https://{TOKEN}@h/o/r.git", "https://h/o/r.git", TOKEN),
            ("remote.o.url", f"https://{TOKEN}:x-oauth-basic@h/r", "https://h/r", TOKEN),
            ("remote.o.pushurl", f"HTTPS://ann:{PASSWORD}@h/r", "HTTPS://h/r", "pass/word-of-a-test"),
            ("remote.o.pushurl", f"https://ann:{PASSWORD}@h/r", "https://h/r", PASSWORD),
            ("remote.o.url", f"ssh://git:{PASSWORD}@h/r", "ssh://git@h/r", PASSWORD),
            ("remote.o.url", "https://ann@h/r", "https://h/r", None),
            ("remote.o.url", "ssh://git@h/r", "ssh://git@h/r", None),
            ("remote.o.url", "git@h:o/r.git", "git@h:o/r.git", None),
            ("remote.o.proxy", f"http://ann:{PASSWORD}@proxy:3128", "http://proxy:3128", PASSWORD),
            ("http.proxy", f"socks5h://ann:{PASSWORD}@proxy", "socks5h://proxy", PASSWORD),
            ("submodule.a/b.url", f"https://u:{TOKEN}@h/s", "https://h/s", TOKEN),
            ("branch.main.remote", f"https://u:{TOKEN}@h/s", "https://h/s", TOKEN),
            ("branch.main.pushRemote", f"https://u:{TOKEN}@h/s", "https://h/s", TOKEN),
            ("lfs.url", f"https://h/s?access_token={TOKEN}&x=1", "https://h/s?access_token=hidden&x=1", TOKEN),
            ("url.https://h/.insteadOf", f"https://u:{TOKEN}@h/", "https://h/", TOKEN),
            (
                "filter.up.smudge",
                f"curl -H 'Authorization: Bearer {TOKEN}' h",
                "curl -H 'Authorization: Bearer hidden' h",
                TOKEN,
            ),
            ("alias.up", f"!curl -H 'Authorization: Bearer {TOKEN}' h", None, TOKEN),
            ("unheard.of", "whatever it is", None, None),
            ("core.sshCommand", "ssh -i key", None, None),
            ("core.askPass", "/tmp/ask", None, None),
            ("core.gitProxy", "tell-all", None, None),
            ("credential.helper", "store", None, None),
            ("credential.https://h.username", "ann", None, None),
            ("credential.https://h.helper", f"!echo password={TOKEN}", None, TOKEN),
            ("http.https://h/.extraHeader", f"PRIVATE-TOKEN: {PASSWORD}", None, PASSWORD),
            ("http.extraheader", f"Authorization: Bearer {PASSWORD}", None, PASSWORD),
            ("http.cookieFile", "cookies", None, None),
            ("http.https://h/.sslKey", "key.pem", None, None),
            ("sendemail.mine.smtpPass", PASSWORD, None, PASSWORD),
            ("imap.pass", PASSWORD, None, PASSWORD),
            ("hub.oauthToken", PASSWORD, None, PASSWORD),
            ("user.name", "Ann", "Ann", None),
            ("remote.o.apiKey", PASSWORD, None, PASSWORD),
            ("core.bare", "false", "false", None),
        ],
    )
    def test_each_setting_keeps_what_is_no_credential(self, checkout, temp, key, value, expected, secret):
        git(checkout, "config", key, value)
        before = snapshot(checkout)
        survey = find_credentials(checkout, temp)
        assert (secret in survey.secrets) if secret else survey.secrets == ()
        with credentials_stripped(checkout, temp):
            lines = git(checkout, "config", "--local", "--list", "-z").split("\0")
            values = [line.partition("\n")[2] for line in lines if line.lower().startswith(f"{key.lower()}\n")]
            assert values == ([] if expected is None else [expected])
            assert not secret or files_holding(secret, checkout) == []
        assert snapshot(checkout) == before

    def test_a_password_in_the_name_of_a_setting(self, checkout, temp):
        git(checkout, "config", f"url.https://u:{TOKEN}@h/.insteadOf", "https://h/")
        git(checkout, "config", f"http.https://ann:{PASSWORD}@h/.sslVerify", "true")
        assert {TOKEN, PASSWORD} <= set(find_credentials(checkout, temp).secrets)
        with credentials_stripped(checkout, temp):
            assert files_holding(TOKEN, checkout) + files_holding(PASSWORD, checkout) == []
            assert git(checkout, "config", "url.https://h/.insteadof") == "https://h/"

    @pytest.mark.parametrize(
        "text",
        [
            f'[HTTP "https://github.com/"]\r\n\tExtraHeader=AUTHORIZATION: {HEADER}\r\n',
            f'[http "https://github.com/"] extraheader = "AUTHORIZATION: basic \\\n{PAYLOAD}" ; a comment',
            f"[http]\n\textraheader = AUTHORIZATION: {HEADER}",
            f'[http.EXAMPLE]extraheader="AUTHORIZATION: {HEADER[:20]}\\\n{HEADER[20:]}"\n',
            f'[http "odd\\"name\\\\"]\n extraheader = {HEADER} # not {TOKEN}\n',
            f"\ufeff# {TOKEN}\n[http] # {PAYLOAD}\nextraheader = AUTHORIZATION: {HEADER}\n",
        ],
        ids=["crlf", "continued", "no final newline", "old subsection", "quoted", "comments"],
    )
    def test_however_the_file_is_written(self, checkout, temp, text):
        config = checkout / ".git/config"
        plain = config.read_bytes()
        config.write_bytes(text.encode() if text.startswith("\ufeff") else plain + text.encode())
        before = snapshot(checkout)
        with credentials_stripped(checkout, temp):
            for secret in (TOKEN, PAYLOAD, PAYLOAD[20:]):
                assert files_holding(secret, checkout) == []
            assert git(checkout, "rev-parse", "--git-dir") == ".git"
        assert snapshot(checkout) == before

    def test_settings_that_are_kept_say_the_same_afterwards(self, checkout, temp):
        git(checkout, "config", "filter.odd.clean", "!f() { echo \"a\\tb\";\n\techo '#;'; }; f ")
        git(checkout, "config", 'branch.sub "section\\.x', " blanks ")
        append(checkout, "[core]\n\tignoreCase\n[push]default=\n")
        expected = git(checkout, "config", "--local", "--list", "-z")
        persist_as_v5(checkout)
        with credentials_stripped(checkout, temp):
            assert git(checkout, "config", "--local", "--list", "-z") == expected

    def test_files_that_repeat_a_secret_or_store_passwords(self, checkout, temp):
        persist_as_v5(checkout)
        folder = checkout / ".git"
        (folder / "FETCH_HEAD").write_text(f"0000\t\tbranch 'main' of https://x:{TOKEN}@h/r\n")
        (folder / "config.bak").write_text(f"[http]\n\textraheader = {HEADER}\n")
        (folder / "description").write_text(f"kept by {PAYLOAD}")
        (folder / "hooks/pre-push").write_text(f"#!/bin/sh\ncurl -u x:{TOKEN} h\n")
        (folder / "passwords").write_text(f"https://ann:{PASSWORD}@h\n")
        git(checkout, "config", "credential.helper", f"store --file {folder}/passwords")
        with (folder / "logs/HEAD").open("a") as log:
            log.write(f"{'0' * 40} {'1' * 40} a <a@b> 1 +0000\tclone: from https://x:{TOKEN}@h/r\n")
        before = snapshot(checkout)
        assert PASSWORD in find_credentials(checkout, temp).secrets
        with credentials_stripped(checkout, temp):
            for secret in (TOKEN, PAYLOAD, PASSWORD):
                assert files_holding(secret, checkout) == []
            assert "one" in git(checkout, "log", "--oneline", "-g")
        assert snapshot(checkout) == before

    def test_a_log_that_the_run_wrote_to_stays_the_runs_and_without_the_secret(self, checkout, temp):
        persist_as_v5(checkout)
        log = checkout / ".git/logs/HEAD"
        log.write_text(log.read_text() + f"{'0' * 40} {'1' * 40} a <a@b> 1 +0000\tclone: {TOKEN}\n")
        with credentials_stripped(checkout, temp) as stripped:
            git(checkout, "commit", "--allow-empty", "-m", "two")
        assert stripped.notes == ()
        assert "commit: two" in log.read_text()
        assert TOKEN not in log.read_text()


class TestPlaces:
    def test_submodules_worktrees_and_nested_repositories(self, checkout, temp):
        made = {
            "modules": checkout / ".git/modules/deep/er",
            "nested": checkout / "vendor/other/.git",
        }
        for path in made.values():
            git(checkout, "init", "--quiet", "--bare", str(path))
            git(checkout, "config", "--file", str(path / "config"), "http.extraheader", HEADER)
        git(checkout, "worktree", "add", "--quiet", str(checkout / "tree"))
        git(checkout, "config", "extensions.worktreeConfig", "true")
        git(checkout / "tree", "config", "--worktree", "http.extraheader", HEADER)
        git(checkout, "config", "--worktree", "http.extraheader", HEADER)
        before = snapshot(checkout)
        with credentials_stripped(checkout, temp) as stripped:
            assert stripped.state.startswith("4 taken out of .git/config.worktree")
            assert files_holding(PAYLOAD, checkout) == []
        assert snapshot(checkout) == before

    def test_a_git_file_that_leads_outside(self, checkout, open_folder, temp):
        git(checkout, "worktree", "add", "--quiet", str(open_folder / "tree"))
        persist_as_v5(checkout)
        before = snapshot(checkout, open_folder / "tree")
        with credentials_stripped(open_folder / "tree", temp):
            assert files_holding(PAYLOAD, checkout) == []
            assert git(open_folder / "tree", "status", "--porcelain") == ""
        assert snapshot(checkout, open_folder / "tree") == before

    def test_a_folder_of_the_repository_instead_of_its_root(self, checkout, temp):
        persist_as_v5(checkout)
        (checkout / "packages/one").mkdir(parents=True)
        with credentials_stripped(checkout / "packages/one", temp):
            assert files_holding(PAYLOAD, checkout) == []
        assert files_holding(PAYLOAD, checkout) == [str(checkout / ".git/config")]

    def test_a_folder_without_a_repository(self, open_folder, temp):
        (open_folder / "plain").mkdir()
        with credentials_stripped(open_folder / "plain", temp) as stripped:
            git(open_folder / "plain", "init", "--quiet")
            assert stripped.state == "none found"
        assert (open_folder / "plain/.git/config").exists()
        assert stripped.notes == ()


class TestRefusals:
    def test_a_configuration_that_git_cannot_read_is_named_and_nothing_of_it_told(self, checkout, temp):
        append(checkout, f'[http "{TOKEN}\n')
        with pytest.raises(IsolationError, match=r"\.git/config holds a credential: line \d+ is no") as caught:
            find_credentials(checkout, temp)
        assert TOKEN not in str(caught.value)

    def test_what_is_too_large_to_be_remembered_is_named(self, checkout, temp):
        with (checkout / ".git/hooks/huge").open("wb") as file:
            file.truncate(2**27)
        persist_as_v5(checkout)
        before = (checkout / ".git/config").read_bytes()
        with (
            pytest.raises(IsolationError, match="hooks/huge cannot be remembered"),
            credentials_stripped(checkout, temp),
        ):
            pytest.fail("it began")
        assert (checkout / ".git/config").read_bytes() == before


class TestInterrupted:
    def test_a_failure_inside_gives_back_too(self, checkout, temp):
        persist_as_v6(checkout, temp)
        before = snapshot(checkout, temp)
        with pytest.raises(ZeroDivisionError), credentials_stripped(checkout, temp):
            raise ZeroDivisionError
        assert snapshot(checkout, temp) == before

    @pytest.mark.parametrize("delay", [0.0, 0.002, 0.006, 0.012, 0.02, 0.03])
    def test_a_signal_at_any_moment_gives_back_too(self, checkout, temp, delay):
        persist_as_v5(checkout)
        persist_as_v6(checkout, temp)
        before = snapshot(checkout, temp)
        cancellation = Cancellation()
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGTERM))
        with cancellation.listening(), pytest.raises(RunCancelled):
            cancellation.hold()
            timer.start()
            while True:
                with credentials_stripped(checkout, temp), cancellation.obeyed():
                    pass
        timer.join()
        assert snapshot(checkout, temp) == before

    def test_a_run_that_ends_in_the_middle_of_a_tool(self, checkout, temp):
        persist_as_v6(checkout, temp)
        before = snapshot(checkout, temp)
        with pytest.raises(RunCancelled), credentials_stripped(checkout, temp), Toolbox.start(checkout) as toolbox:
            Box(toolbox, checkout).bash("git config core.fsmonitor evil; echo evil > .git/hooks/post-checkout")
            raise RunCancelled("SIGTERM")
        assert snapshot(checkout, temp) == before


def test_the_tools_of_a_real_toolbox_find_none_and_can_work(checkout, temp):
    persist_as_v5(checkout)
    persist_as_v6(checkout, temp)
    git(checkout, "remote", "add", "origin", f"https://u:{TOKEN}@h/r")
    before = snapshot(checkout / ".git/config", checkout / ".git/hooks", temp)
    with credentials_stripped(checkout, temp) as stripped, Toolbox.start(checkout, restore=stripped) as toolbox:
        box = Box(toolbox, checkout)
        seen = box.bash(
            "git config --list --show-origin; cat .git/config; grep -r . .git --include='*' | head -c 99999"
        )
        done = box.sh(
            f"git status --short && echo x > x && git add x && git commit -qm x && git fetch -q file://{checkout}"
        )
    assert (done.exit_code, done.stderr) == (0, "")
    assert "remote.origin.url=https://h/r" in seen.text
    redact = Redactor((TOKEN, PAYLOAD))
    assert redact(seen.text) == seen.text
    assert stripped.notes == ()
    assert snapshot(checkout / ".git/config", checkout / ".git/hooks", temp) == before
    assert git(checkout, "log", "--format=%s").splitlines() == ["x", "one"]


@pytest.mark.parametrize("spoil", [Path.unlink, lambda file: file.chmod(0)], ids=["removed", "closed"])
def test_a_file_that_cannot_be_read_at_the_end_comes_back(checkout, temp, spoil):
    persist_as_v5(checkout)
    files = (checkout / ".git/config", persist_as_v6(checkout, temp))
    before = snapshot(*files)
    with credentials_stripped(checkout, temp) as stripped:
        for file in files:
            spoil(file)
    assert (stripped.notes, snapshot(*files)) == ((), before)


@root_only
def test_owners_come_back_too(checkout, temp):
    file = persist_as_v6(checkout, temp)
    persist_as_v5(checkout)
    for path in (checkout, *checkout.rglob("*"), file):
        os.chown(path, 12345, 12, follow_symlinks=False)
    (checkout / ".git/config").chmod(0o640)
    before = snapshot(checkout, temp)
    with credentials_stripped(checkout, temp), Toolbox.start(checkout) as toolbox:
        assert toolbox.run_command is not None
        assert "extraheader" not in Box(toolbox, checkout).bash("cat .git/config").text
    assert snapshot(checkout, temp) == before


NOT_ROOT = """
import os, subprocess, sys
from pathlib import Path
from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.restore import credentials_stripped
from stepflow.domain.checkout import CommandRequest
checkout, temp = Path(sys.argv[1]), Path(sys.argv[2])
with credentials_stripped(checkout, temp) as away, Toolbox.start(checkout) as box:
    script = "grep -rc extraheader .git/config; chmod 0 .git/hooks .git/config; echo x > .git/info/exclude"
    script += "; chmod 0 .git"
    print(box.run_command(CommandRequest(argv=("sh", "-c", script), timeout=9)).stdout.strip(), away.state)
print(os.getuid(), away.notes)
"""


@root_only
def test_a_parent_that_is_no_root_process_can_do_all_this_too(checkout, temp, packages):
    persist_as_v5(checkout)
    persist_as_v6(checkout, temp)
    for path in (checkout, *checkout.rglob("*"), temp, *temp.rglob("*")):
        os.chown(path, 12345, 12345, follow_symlinks=False)
    before = snapshot(checkout, temp)
    done = run_as_other_user(NOT_ROOT, checkout, temp, packages=packages)
    assert done.stdout == "0 2 taken out of .git/config, runner_temp\n12345 ()\n", done.stderr
    assert snapshot(checkout, temp) == before


def test_base64_of_the_payload_is_what_git_would_send():
    assert base64.b64decode(PAYLOAD).decode() == f"x-access-token:{TOKEN}"
