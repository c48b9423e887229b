"""What a tool of a server answers reaches the model: texts as text, images as images, and what all else is."""

from __future__ import annotations

import base64
import json

import pytest

from stepflow.domain.secrets import Redactor
from tests import images
from tests.mcp.steps import Step, speaks


def coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def resource(**fields: object) -> dict[str, object]:
    return {"type": "resource", "resource": {"uri": "repo://o/r/contents/x", **fields}}


def image(data: bytes = images.png(), type_: str = "image/png") -> dict[str, object]:
    return {"type": "image", "mimeType": type_, "data": coded(data)}


@pytest.fixture
def answering(open_step, toolbox):
    """A step whose server answers every call with this content."""

    def begin(*content: object, is_error: bool = False, **options: object) -> Step:
        result = {"content": content, "isError": is_error}
        (toolbox.checkout / "result.json").write_text(json.dumps(result))
        program = (
            "RESULT = json.load(open('result.json'))\nserve(lambda message: send(id=message['id'], result=RESULT))"
        )
        step = open_step(speaks(program), **options)
        step.begin()
        return step

    return begin


LINK = {"type": "resource_link", "uri": "file:///a/b.txt", "name": "b"}


@pytest.mark.whole
@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([resource(text="def f():\n    pass\n", mimeType="text/x-python")], "def f():\n    pass\n"),
        ([resource(text="plain")], "[resource repo://o/r/contents/x]\nplain"),
        ([resource(blob=coded("grüße\n".encode()), mimeType="text/plain; charset=utf-8")], "text/plain]\ngrüße\n"),
        ([resource(blob=coded(b'{"a": 1}'), mimeType="application/vnd.x+json")], '{"a": 1}'),
        ([resource(blob=coded(b"\xff\xfe"), mimeType="text/plain")], "contents/x, text/plain, 2 bytes, left out]"),
        ([resource(blob=coded(b"[a]\n"), mimeType="application/octet-stream")], "x, application/octet-stream]\n[a]\n"),
        ([resource(blob=coded(b"<svg/>"), mimeType="image/svg+xml")], "x, image/svg+xml]\n<svg/>"),
        ([resource(blob=coded(b"1"))], "[resource repo://o/r/contents/x]\n1"),
        ([resource(blob=coded(b"%PDF-1.7\n%\xe2\xe3"), mimeType="application/pdf")], "/pdf, 12 bytes, left out]"),
        ([resource(blob=coded(b"\x7fELF\0"))], "[resource repo://o/r/contents/x, of no type, 5 bytes, left out]"),
        ([resource(blob="no base64!", mimeType="text/plain")], "text/plain, 7 bytes, left out]"),
        ([{"type": "audio", "mimeType": "audio/wav", "data": coded(b"RIFF")}], "[audio, audio/wav, 4 bytes, left out]"),
        ([LINK], "[link to the resource file:///a/b.txt, b]"),
        (
            [{**LINK, "title": "B", "mimeType": "text/plain", "size": 1234, "description": "What\nit is"}],
            "[link to the resource file:///a/b.txt, B, text/plain, 1,234 bytes: What it is]",
        ),
        ([image(b"GIF89a", "image/gif")], "[image, image/gif, 6 bytes, left out: not a PNG, JPEG, GIF or WebP]"),
        ([image(b"<svg/>", "image/svg+xml")], "[image, image/svg+xml, 6 bytes, left out: not a PNG"),
        ([image(images.png(8001))], "left out: more than 8,000 pixels wide or high]"),
        ([image(images.png_of(1)[:10])], "left out: not a PNG"),
        ([{"type": "image", "mimeType": "image/png", "data": "?"}], "left out: not a PNG"),
        (
            [{"type": "text", "text": "one"}, resource(text="two"), {"type": "text", "text": "three"}],
            "one\n[resource repo://o/r/contents/x]\ntwo\nthree",
        ),
    ],
)  # fmt: skip
def test_a_part_is_text_or_says_what_it_is(answering, content, text):
    result = answering(*content).call("search")
    assert text in result.output
    assert (result.is_error, result.images) == (False, ())


@pytest.mark.whole
def test_a_secret_in_a_resource_is_masked_and_a_long_one_is_bounded(answering):
    secret = "resource-secret-0123456789"
    step = answering(resource(text=f"{secret}\n" + "x" * 300_000), resource(text=secret), redact=Redactor([secret]))
    text = step.call("search").output
    assert "resource-secret" not in text
    assert "***" in text
    assert len(text) < 110_000


@pytest.mark.whole
@pytest.mark.parametrize("make", [images.png, images.gif, images.jpeg, images.webp_lossy])
def test_an_image_is_one_whatever_its_server_calls_it(answering, make):
    result = answering({"type": "text", "text": "a dot"}, image(make(), "image/x")).call("search")
    (seen,) = result.images
    assert base64.b64decode(seen.data) == make()
    assert result.output == f"a dot\n[image, {seen.type}, 4 × 3 pixels]"


@pytest.mark.parametrize("type_", ["image/png", "application/octet-stream"])
def test_an_image_in_a_resource_is_one_too(answering, type_):
    result = answering(resource(blob=coded(images.png()), mimeType=type_)).call("search")
    assert [base64.b64decode(each.data) for each in result.images] == [images.png()]
    assert result.output == "[resource repo://o/r/contents/x, image/png, 4 × 3 pixels]"


def test_of_a_failed_call_only_texts_are_sent(answering):
    result = answering({"type": "text", "text": "no"}, image(), is_error=True).call("search")
    assert (result.images, result.is_error) == ((), True)
    assert result.output == "no\n[image, image/png, 4 × 3 pixels, left out: the call failed]"


def test_images_are_bounded_over_all_calls_of_a_step(answering):
    step = answering(*[image()] * 4)
    assert [len(step.call("search").images) for _ in range(4)] == [4, 4, 2, 0]
    assert step.call("search").output.count("left out: after the first 10]") == 4
    step.tools.end_step()
    step.begin()
    assert len(step.call("search").images) == 4


def test_their_bytes_are_bounded_too(answering):
    step = answering(image(images.png_of(2_900_000)))
    seen = [step.call("search") for _ in range(5)]
    assert [len(result.images) for result in seen] == [1, 1, 1, 0, 0]
    assert "left out: beyond 10 MB in all]" in seen[-1].output
