"""Images of the issue reach the model, and none that is not GitHub's or not an image: the rest is said."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from stepflow.domain.run import LARGEST_IMAGE, LARGEST_IMAGES, MOST_IMAGES
from tests.action.follow_up_world import PULL, follow_up, improve
from tests.images import HTML, SVG, gif, jpeg, png, png_of, webp_lossless
from tests.servers.git_http import Attachment
from tests.servers.messages_api import Answer, Failure
from tests.world import TOKEN, World, answer, label_event, solve

pytestmark = pytest.mark.whole

TEXT = "`greeting.txt` says only `hello`."


@pytest.fixture
def reading(world: World) -> World:
    """A world whose run may read."""
    world.runner.inputs["read-token"] = TOKEN
    return world


def attach(world: World, number: int, content: bytes = b"", **more: Any) -> str:
    """An attachment in a private repository: its own address gives nothing, and the page has a signed one."""
    id_ = f"{number:08d}-9573-11eb-9c73-ad2ed071a2fa"
    address = f"{world.git_server.url}/user-attachments/assets/{id_}"
    path = f"/1/2-{id_}.png?jwt=signed&x=1"
    world.git_server.attachments[path] = Attachment(content, **more)
    world.github.state.signed[address] = f"{world.git_server.url}{path}"
    return address


def shown(*addresses: str) -> dict[str, Any]:
    """The event of an issue that shows these images."""
    return written("\n\n".join((TEXT, *(f"![what a picture says]({address})" for address in addresses))))


def written(body: str) -> dict[str, Any]:
    return label_event(body=body)


def run(world: World, event: dict[str, Any], replies: Any = None, **inputs: str) -> Any:
    """A run on an issue that GitHub has as the event does."""
    world.github.state.issues[7]["body"] = event["issue"]["body"]
    done = world.run(solve() if replies is None else replies, event, **inputs)
    assert world.git_server.leaked == []
    return done


def blocks(world: World, turn: int = 0) -> list[dict[str, Any]]:
    """The first message of a turn."""
    return list(world.model.bodies[turn]["messages"][0]["content"])


def images(world: World, turn: int = 0) -> list[tuple[str, bytes]]:
    """The images in it."""
    sources = [block["source"] for block in blocks(world, turn) if block["type"] == "image"]
    assert all(source["type"] == "base64" for source in sources)
    return [(source["media_type"], base64.b64decode(source["data"], validate=True)) for source in sources]


def prompt(world: World) -> str:
    return "\n".join(block["text"] for block in blocks(world) if block["type"] == "text")


def said_everywhere(world: World, done: Any, sentence: str) -> None:
    """In the prompt, the comment, the summary and the log."""
    places = (prompt(world), world.comments()[-1], done.summary, done.log)
    assert [sentence.removesuffix(".") in place for place in places] == [True] * 4, (sentence, places)


def report(done: Any) -> Any:
    return done.report


def test_an_image_of_each_kind_arrives_as_a_block(reading: World) -> None:
    files = [png(), jpeg(), gif(), webp_lossless()]
    addresses = [attach(reading, number, content, type="text/plain") for number, content in enumerate(files)]
    done = run(reading, shown(*addresses))
    assert done.outputs["outcome"] == "completed", done.log
    types = ["image/png", "image/jpeg", "image/gif", "image/webp"]
    assert images(reading) == [*zip(types, files, strict=True)]
    # A step later, too, and each behind the word for it.
    assert images(reading, 1) == images(reading)
    first = next(at for at, block in enumerate(blocks(reading)) if block["type"] == "image")
    assert addresses[0].rpartition("/")[2] in blocks(reading)[first - 1]["text"]
    assert "not seen" not in prompt(reading) + done.summary
    listed = report(done)["images"]
    assert listed[0] == {"address": addresses[0], "problem": None, "type": "image/png", "width": 4, "height": 3}
    page = (done.folder / "report.html").read_text()
    assert f'<img src="data:image/png;base64,{base64.b64encode(png()).decode()}"' in page
    assert len(reading.git_server.asked) == 4


def test_with_no_image_nothing_is_asked_for_and_nothing_more_is_sent(reading: World) -> None:
    done = run(reading, shown(), lambda _: Failure(status=400, message="stop"))
    asked, bodies = [request.path for request in reading.github.requests], list(reading.model.bodies)
    assert not any("images_read" in event["event"] for event in reading.events(done))
    reading.github.requests.clear()
    reading.model.requests.clear()
    run(reading, shown(attach(reading, 1, png())), lambda _: Failure(status=400, message="stop"))
    before = {*asked}
    more = [each.path for each in reading.github.requests if each.method == "GET" and each.path not in before]
    assert [path.partition("?")[0] for path in more] == ["/repos/o/r/issues/7"]
    first, second = bodies[0], reading.model.bodies[0]
    assert {**first, "messages": None} == {**second, "messages": None}
    assert first["messages"][0]["content"][0] == second["messages"][0]["content"][0]
    assert [block["type"] for block in first["messages"][0]["content"]] == ["text", "text"]


NOT_PASSED_ON: dict[str, tuple[Callable[[World, int], str], str]] = {
    "a drawing": (lambda world, number: attach(world, number, SVG, type="image/png"), "not a PNG, JPEG, GIF or WebP"),
    "a page": (lambda world, number: attach(world, number, HTML), "not a PNG, JPEG, GIF or WebP"),
    "20 MB": (lambda world, number: attach(world, number, png_of(20_000_000)), "larger than 3.75 MB"),
    "20 MB, announced as few": (
        lambda world, number: attach(world, number, png_of(20_000_000), announced=2**40),
        "larger than 3.75 MB",
    ),
    "too wide": (lambda world, number: attach(world, number, png(8001, 1)), "more than 8,000 pixels wide or high"),
    "a redirect to another host": (
        lambda world, number: attach(world, number, leads_to=f"{world.github.log_store.url}/logs/1?sig=signed"),
        "its address leads to another host",
    ),
    "a redirect to no address": (
        lambda world, number: attach(world, number, leads_to="http://["),
        "its address leads to another host",
    ),
    "redirects without end": (
        lambda world, number: attach(world, number, leads_to="?jwt=signed&x=1"),
        "GitHub did not give it",
    ),
    "another host": (lambda world, _: world.github.log_store.keep(1, png()), "not attached on GitHub"),
    "no attachment": (lambda world, _: f"{world.git_server.url}/o/r/raw/main/x.png", "not attached on GitHub"),
    "gone": (
        lambda world, _: f"{world.git_server.url}/user-attachments/assets/{'0' * 8}-1111-1111-1111-{'0' * 12}",
        "GitHub did not give it",
    ),
}


def test_what_is_no_image_of_githubs_is_not_passed_on_and_said(reading: World) -> None:
    addresses = [make(reading, number) for number, (make, _) in enumerate(NOT_PASSED_ON.values())]
    reasons = [reason for _, reason in NOT_PASSED_ON.values()]
    done = run(reading, shown(*addresses), solve_without_comment())
    assert done.outputs["outcome"] == "completed", done.log
    assert images(reading) == []
    said_everywhere(reading, done, f"{len(reasons)} images of the issue were not seen: {reasons[0]} ×2")
    assert reading.github.log_store.requests == []
    assert [image["problem"] for image in report(done)["images"]] == reasons
    assert "signed" not in json.dumps(report(done)["images"])


def test_an_image_that_its_server_does_not_give_at_once_is_asked_for_again(reading: World) -> None:
    fails = ([502], [503, 429], [0])
    addresses = [attach(reading, number, png(), fails=statuses) for number, statuses in enumerate(fails)]
    done = run(reading, shown(*addresses), solve_without_comment())
    assert done.outputs["outcome"] == "completed", done.log
    assert len(images(reading)) == 3
    assert "not seen" not in done.summary
    assert 37.0 in reading.clock.slept, "it waits for as long as the server asks"


def test_an_image_that_its_server_never_gives_costs_no_run(reading: World) -> None:
    done = run(reading, shown(attach(reading, 1, png(), fails=[502] * 99)), solve_without_comment())
    assert done.outputs["outcome"] == "completed", done.log
    said_everywhere(reading, done, "1 image of the issue was not seen: GitHub did not give it.")


def solve_without_comment() -> list[Any]:
    """A closing that leaves the comment to the engine."""
    return [*solve()[:-1], answer("closure.issue", "closing")]


def test_a_redirect_within_githubs_hosts_is_followed(reading: World) -> None:
    reading.git_server.attachments["/storage/1"] = Attachment(png())
    run(reading, shown(attach(reading, 1, leads_to="/storage/1")), [])
    assert images(reading) == [("image/png", png())]


def test_an_attachment_that_is_not_signed_is_read_where_everybody_may(reading: World) -> None:
    address = attach(reading, 1)
    reading.github.state.signed.clear()
    reading.git_server.attachments[address.removeprefix(reading.git_server.url)] = Attachment(png())
    run(reading, shown(address, address), [])
    assert images(reading) == [("image/png", png())]


def test_without_read_token_no_image_is_read_and_that_is_said(world: World) -> None:
    world.runner.inputs["read-token"] = ""
    event = shown(attach(world, 1, png()), attach(world, 2, png()))
    event["issue"] |= {"user": {"login": "bob", "type": "User"}, "author_association": "OWNER"}
    done = run(world, event)
    assert images(world) == []
    said_everywhere(world, done, "2 images of the issue were not seen: there is no `read-token` ×2.")
    assert world.git_server.asked == []


def test_only_what_people_see_is_read(reading: World) -> None:
    first, second, third, fourth, fifth = (attach(reading, number, png(number, 1)) for number in range(1, 6))
    body = (
        f"{TEXT}\n\n<!-- ![]({first}) -->\n\n<img width=1 src='{second}'>\n\n`![]({third})`\n\n"
        f'<p><img alt="x" width="300" src="{fourth}"></p>\n\n![by its name][it]\n\n[it]: {fifth}'
    )
    run(reading, written(body), [])
    assert images(reading) == [("image/png", png(4, 1)), ("image/png", png(5, 1))]


def test_images_of_writers_comments_are_read_and_no_strangers(reading: World) -> None:
    state = reading.github.state
    state.add_comment(7, f"Like this: ![]({attach(reading, 1, png(1, 1))})", "bob")
    state.add_comment(7, f"![]({attach(reading, 2, png(2, 1))})", "eve")
    run(reading, shown(), [])
    assert images(reading) == [("image/png", png(1, 1))]
    assert len(reading.git_server.asked) == 1


def test_a_follow_up_is_shown_images_of_reviewers_that_everybody_may_read(opened: World) -> None:
    address = attach(opened, 1)
    opened.github.state.signed.clear()
    opened.git_server.attachments[address.removeprefix(opened.git_server.url)] = Attachment(png())
    opened.github.state.add_thread(PULL, ("bob", f"Like this: ![]({address})"), path="greeting.txt")
    opened.model.requests.clear()
    done = follow_up(opened, improve())
    assert done.outputs["outcome"] == "completed", done.log
    assert images(opened) == [("image/png", png())]


def test_images_are_bounded_in_number_and_together(reading: World) -> None:
    few = LARGEST_IMAGES // LARGEST_IMAGE
    addresses = [
        attach(reading, number, png_of(LARGEST_IMAGE) if number <= few else png_of(LARGEST_IMAGES % LARGEST_IMAGE + 1))
        for number in range(MOST_IMAGES + 3)
    ]
    done = run(reading, shown(*addresses))
    assert len(images(reading)) == few
    problems = [image["problem"] for image in report(done)["images"]]
    assert problems == [None] * few + ["beyond 10 MB in all"] * (MOST_IMAGES - few) + ["after the first 10"] * 3
    said_everywhere(reading, done, "beyond 10 MB in all ×8; after the first 10 ×3.")
    assert len(reading.git_server.asked) == MOST_IMAGES


def test_a_run_that_goes_on_shows_the_same_images_without_asking_again(reading: World) -> None:
    event = shown(attach(reading, 1, png()), reading.github.log_store.keep(1, png()))
    first = run(reading, event, [*solve()[:1], Failure(status=401, message="no")])
    assert first.outputs["outcome"] == "model_failed", first.log
    reading.git_server.attachments.clear()
    reading.model.requests.clear()
    asked = len(reading.git_server.asked)
    done = run(reading, event, solve()[1:], resume=first.outputs["run-folder"])
    assert done.outputs["outcome"] == "completed", done.log
    assert images(reading) == [("image/png", png())]
    assert len(reading.git_server.asked) == asked
    assert [image["problem"] for image in report(done)["images"]] == [None, "not attached on GitHub"]
    assert "1 image of the issue was not seen" in reading.comments()[-1]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "this model does not support image input"),
        (500, "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"),
        (400, "messages.0.content.3.image.source.base64.data: Could not process image"),
    ],
)
def test_a_service_that_refuses_images_gets_none(reading: World, status: int, said: str) -> None:
    replies = iter(solve())

    def reply(body: dict[str, Any]) -> Answer | Failure:
        with_image = any(block["type"] == "image" for block in body["messages"][0]["content"])
        return Failure(status=status, message=said) if with_image else next(replies)  # type: ignore[return-value]

    done = run(reading, shown(attach(reading, 1, png())), reply)
    assert done.outputs["outcome"] == "completed", done.log
    assert "the model's service does not take it" in blocks(reading, -1)[-1]["text"]
    assert [len(images(reading, turn)) for turn in range(3)] == [1, 0, 0]
    assert "images are left out" in done.log


def test_a_scripted_model_looks_at_none(reading: World) -> None:
    (reading.checkout.parent / "scenario.yaml").write_text("")
    done = run(reading, shown(attach(reading, 1, png())), scenario="x.yaml")
    assert done.outputs["outcome"] == "misconfigured"
    assert reading.git_server.asked == []
