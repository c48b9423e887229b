"""Where an attachment of GitHub's is."""

from __future__ import annotations

import pytest

from stepflow.boundary.image_addresses import attached_id, image_hosts, signed_addresses

ID = "33eed580-9573-11eb-9c73-ad2ed071a2fa"
ENTERPRISE = "https://ghe.example.com"


@pytest.mark.parametrize(
    "address",
    [
        f"https://github.com/user-attachments/assets/{ID}",
        f"https://github.com/o/r/assets/5061384/{ID}",
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
        f"https://example.com/user-attachments/assets/{ID}",
        f"https://github.com.example.com/user-attachments/assets/{ID}",
        f"https://github.com@example.com/user-attachments/assets/{ID}",
        f"https://user:word@github.com/user-attachments/assets/{ID}",
        f"https://github.com:8443/user-attachments/assets/{ID}",
        f"https://camo.githubusercontent.com/{ID}",
        "https://github.com/o/r/raw/main/picture.png",
        f"https://github.com/search?q={ID}",
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
