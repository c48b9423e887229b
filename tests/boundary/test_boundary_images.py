"""Where an attachment of GitHub's is, and what counts as an image."""

from __future__ import annotations

import pytest

from stepflow.boundary.images import attached_id, image_hosts, signed_addresses
from stepflow.domain.image_file import inspect_image
from stepflow.domain.run import ImageProblem, ImageType
from tests.images import HTML, SVG, gif, jpeg, png, webp_extended, webp_lossless, webp_lossy

ID = "33eed580-9573-11eb-9c73-ad2ed071a2fa"
ENTERPRISE = "https://ghe.example.com"


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


@pytest.mark.parametrize(
    "address",
    [
        f"https://github.com/user-attachments/assets/{ID}",
        f"https://GitHub.com/user-attachments/assets/{ID.upper()}",
        f"https://github.com/o/r/assets/5061384/{ID}",
        f"https://github.com/{ID.replace('3', '4')}/r/assets/5061384/{ID}",
        f"https://user-images.githubusercontent.com/5061384/113500588-{ID}.png",
        f"https://private-user-images.githubusercontent.com/5061384/113500588-{ID}.png?jwt=ey.J.x",
        f"https://cloud.githubusercontent.com/assets/1/2/{ID}.jpeg",
    ],
)
def test_an_attachment_is_known_by_its_id(address):
    assert attached_id(address, image_hosts("https://github.com")) == ID
    assert attached_id(address, image_hosts(ENTERPRISE)) == ""


@pytest.mark.parametrize("place", ["ghe.example.com/storage", "media.ghe.example.com"])
def test_an_enterprise_server_keeps_its_own(place):
    address = f"https://{place}/user/5/files/{ID}"
    assert attached_id(address, image_hosts(ENTERPRISE)) == ID
    assert attached_id(address, image_hosts("https://github.com")) == ""


@pytest.mark.parametrize(
    "address",
    [
        "",
        "picture.png",
        f"https://example.com/user-attachments/assets/{ID}",
        f"https://github.com.example.com/user-attachments/assets/{ID}",
        f"https://github.com@example.com/user-attachments/assets/{ID}",
        f"https://user:word@github.com/user-attachments/assets/{ID}",
        f"https://github.com:8443/user-attachments/assets/{ID}",
        f"https://camo.githubusercontent.com/{ID}",
        "https://github.com/o/r/raw/main/picture.png",
        "https://raw.githubusercontent.com/o/r/main/picture.png",
        f"https://github.com/search?q={ID}",
        f"https://github.com/o/r/raw/main/{ID}.png",
        f"https://github.com/o/r/blob/main/assets/1/{ID}",
        f"https://[github.com/{ID}",
    ],
)
def test_nothing_else_is_one(address):
    assert attached_id(address, image_hosts("https://github.com")) == ""


def test_a_page_says_where_its_images_can_be_read():
    signed = f"https://private-user-images.githubusercontent.com/1/2-{ID}.png?jwt=a&b=c"
    page = (
        f'<p><a href="x"><img src="{signed.replace("&", "&amp;")}" alt="&lt;img src=x&gt;"></a><img alt="none">'
        f'<img src="https://private-user-images.githubusercontent.com/1/2-{ID}.png?jwt=old">'
        f'<img src="https://camo.githubusercontent.com/{ID}" data-canonical-src="https://example.com/x.png"><code>'
    )
    assert signed_addresses(["", page], image_hosts("https://github.com")) == {ID: signed}
