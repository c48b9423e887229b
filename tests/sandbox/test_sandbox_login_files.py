"""What a login step leaves in the checkout is empty while tools run, and as it was afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toolbox_world import Box

from stepflow.sandbox.box import Toolbox
from stepflow.sandbox.credentials.rules import secrets_of_login
from stepflow.sandbox.credentials.stripped_credentials import find_credentials
from stepflow.sandbox.restore import credentials_stripped

#: As google-github-actions/auth writes it, with the job's own request token in it.
GOOGLE = {
    "type": "external_account",
    "audience": "//iam.googleapis.com/projects/1",
    "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
    "token_url": "https://sts.googleapis.com/v1/token",
    "credential_source": {
        "url": "https://identity.example/token?api-version=2.0&audience=google",
        "headers": {"Authorization": "Bearer request-token-of-the-job"},
    },
}


def put(checkout: Path, text: str, name: str = "gha-creds-1.json") -> Path:
    path = checkout / name
    path.write_text(text)
    path.chmod(0o640)
    return path


def test_tools_see_an_empty_file_and_later_steps_the_whole_one(checkout: Path) -> None:
    path = put(checkout, json.dumps(GOOGLE))
    before = (path.read_bytes(), path.stat().st_mode, path.stat().st_uid)
    with credentials_stripped(checkout, None, (Path("gha-creds-1.json"),)) as stripped:
        assert stripped.state == "1 taken out of gha-creds-1.json"
        with Toolbox.start(checkout, restore=stripped) as toolbox:
            assert Box(toolbox, checkout).bash("cat gha-creds-1.json; wc -c < gha-creds-1.json").text.strip() == "0"
    assert (path.read_bytes(), path.stat().st_mode, path.stat().st_uid) == before
    assert stripped.notes == ()


def test_what_a_tool_wrote_in_its_place_stays(checkout: Path) -> None:
    path = put(checkout, json.dumps(GOOGLE))
    with credentials_stripped(checkout, None, (Path("gha-creds-1.json"),)):
        path.write_text("a tool's own")
    assert path.read_text() == "a tool's own"


def test_its_secrets_are_known_before_anything_is_changed(checkout: Path) -> None:
    put(checkout, json.dumps(GOOGLE))
    assert "request-token-of-the-job" in find_credentials(checkout, None, (Path("gha-creds-1.json"),)).secrets


def test_a_file_outside_of_the_checkout_or_none_at_all_is_left_alone(checkout: Path, tmp_path: Path) -> None:
    outside = put(tmp_path, json.dumps(GOOGLE))
    (checkout / "link.json").symlink_to(outside)
    with credentials_stripped(checkout, None, (outside, Path("link.json"), Path("no-such-file"))) as stripped:
        assert json.loads(outside.read_text()) == GOOGLE
    assert stripped.state == "none found"


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        (json.dumps({"type": "service_account", "private_key": "-----BEGIN\nabc", "private_key_id": "k1"}), {"abc"}),
        (json.dumps([{"client_secret": "s3cret", "refresh_token": "1//r", "token_uri": "https://x"}]), {"s3cret"}),
        ("eyJhbGciOi.token.sig\n", {"eyJhbGciOi.token.sig"}),
        ("[default]\naws_access_key_id = AKIA1\naws_secret_access_key = s/1\nregion = eu\n", {"AKIA1", "s/1"}),
        ("", set()),
    ],
)
def test_the_secrets_of_each_kind_of_file(text: str, secrets: set[str]) -> None:
    secrets_in_it = secrets_of_login(text)
    assert all(any(secret in form for form in secrets_in_it) for secret in secrets)
    assert not {"eu", "k1", "https://x", ""} & secrets_in_it
