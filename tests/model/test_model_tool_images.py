"""Images that a tool gave are sent with its result, and left out for a service that takes none."""

from __future__ import annotations

from stepflow.domain.conversation import (
    IMAGE_LEFT_OUT,
    Message,
    ToolCall,
    has_images,
    tool_result_block,
    without_images,
)
from stepflow.domain.run import ImageType, ToolImage

IMAGE = ToolImage(type=ImageType.PNG, data="x" * 40)
RESULT = tool_result_block(ToolCall(tool_use_id="t1", name="draw", input={}, output="a dot", images=(IMAGE, IMAGE)))


def test_an_image_stands_in_the_result_of_its_call():
    text, first, second = RESULT["content"]
    assert text == {"type": "text", "text": "a dot"}
    source = {"type": "base64", "media_type": "image/png", "data": IMAGE.data}
    assert first == second == {"type": "image", "source": source}


def test_a_service_that_takes_none_gets_a_word_in_its_place():
    message = Message(role="user", content=(RESULT,))
    assert has_images(message)
    without = without_images(message)
    assert not has_images(without)
    (result,) = without.content
    assert result["tool_use_id"] == "t1"
    assert [block["type"] for block in result["content"]] == ["text"] * 3
    assert result["content"][1]["text"] == IMAGE_LEFT_OUT
