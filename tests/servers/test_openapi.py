"""The description of GitHub's API notices what GitHub would not understand or would not answer."""

import json

import pytest
from openapi_core import OpenAPI

from tests.servers.openapi import DESCRIPTION, load_contract

COMMENTS = "/repos/o/r/issues/7/comments"


def test_the_description_is_valid() -> None:
    assert OpenAPI.from_dict(json.loads(DESCRIPTION.read_text(encoding="utf-8"))).spec


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "answer", "fits"),
    [
        ("POST", COMMENTS, b'{"text": "x"}', 422, b'{"message": "no"}', False),
        ("GET", COMMENTS, b"", 200, b'[{"id": "x"}]', False),
        ("GET", "/repos/o/r/nowhere", b"", 200, b"[]", False),
        ("GET", COMMENTS, b"", 200, b"[]", True),
    ],
    ids=["an unknown field", "a wrong answer", "an unknown path", "a sound exchange"],
)
def test_an_exchange_that_github_does_not_describe_is_a_violation(
    method: str, path: str, body: bytes, status: int, answer: bytes, fits: bool
) -> None:
    assert (load_contract().violations(method, path, [], body, status, answer) == []) is fits
