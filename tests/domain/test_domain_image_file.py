"""What counts as an image, and of which kind and size."""

from __future__ import annotations

import pytest

from stepflow.domain.conversation import inspect_image
from stepflow.domain.run import ImageProblem, ImageType
from tests.images import HTML, SVG, gif, jpeg, png, webp_extended, webp_lossless, webp_lossy


@pytest.mark.parametrize(
    ("make", "type_"),
    [
        (png, ImageType.PNG),
        (gif, ImageType.GIF),
        (jpeg, ImageType.JPEG),
        (webp_lossy, ImageType.WEBP),
        (webp_lossless, ImageType.WEBP),
        (webp_extended, ImageType.WEBP),
    ],
)
def test_the_first_bytes_say_what_an_image_is(make, type_):
    assert inspect_image(make()) == (type_, 4, 3)
    assert inspect_image(make(8000, 1)) == (type_, 8000, 1)
    assert inspect_image(make(1, 8001)) == ImageProblem.TOO_WIDE
    for length in range(10):
        assert inspect_image(make()[:length]) == ImageProblem.NO_IMAGE


@pytest.mark.parametrize(
    "data",
    [b"", SVG, HTML, png()[:8] + HTML, b"BM" + bytes(60), b"\xff\xd8\xff", jpeg()[:14], png(0, 3), gif(4, 0)],
)
def test_what_only_looks_like_an_image_is_none(data):
    assert inspect_image(data) == ImageProblem.NO_IMAGE
