"""What a tool of a server answers: texts and images for the model, and a line about everything else."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.domain.conversation import inspect_image
from stepflow.domain.run import LARGEST_IMAGE, ImageProblem, ToolImage
from stepflow.domain.text import count

if TYPE_CHECKING:
    # The package is loaded where a step has a server.
    from mcp_types import BlobResourceContents, CallToolResult, ContentBlock, ResourceLink

#: What no text holds.
_BINARY = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_FAILED = "the call failed"


@dataclass(frozen=True, kw_only=True)
class FoundImage:
    """An image in an answer, and its description for people and models."""

    image: ToolImage
    description: str


@dataclass(frozen=True, kw_only=True)
class CallAnswer:
    """The parts of an answer in their order."""

    parts: tuple[str | FoundImage, ...]
    is_error: bool = False

    def shown(self, *, images: int, characters: int) -> tuple[str, tuple[ToolImage, ...]]:
        """The text, and the images that the model may see: so many at most, with so many characters of base64. A text
        says where each stood. An error has none: the API takes only text there."""
        lines: list[str] = []
        seen: list[ToolImage] = []
        for part in self.parts:
            if isinstance(part, str):
                lines.append(part)
                continue
            characters -= len(part.image.data)
            too_many = ImageProblem.TOO_MANY if len(seen) == images else ImageProblem.TOO_MUCH if characters < 0 else ""
            if problem := _FAILED if self.is_error else too_many:
                lines.append(f"[{part.description}, left out: {problem}]")
                characters += len(part.image.data)
            else:
                lines.append(f"[{part.description}]")
                seen.append(part.image)
        return "\n".join(lines), tuple(seen)


def read_answer(result: CallToolResult) -> CallAnswer:
    """Structured content is shown as JSON where no text says the same."""
    parts = tuple(part for block in result.content for part in _read(block))
    has_text = any(isinstance(part, str) and part.strip() for part in parts)
    if not has_text and result.structured_content is not None:
        parts = (*parts, json.dumps(result.structured_content, ensure_ascii=False))
    return CallAnswer(parts=parts, is_error=bool(result.is_error))


def _read(block: ContentBlock) -> Iterator[str | FoundImage]:
    from mcp_types import (  # noqa: PLC0415 - the package is loaded where a step has a server
        AudioContent,
        BlobResourceContents,
        EmbeddedResource,
        ImageContent,
        ResourceLink,
        TextContent,
        TextResourceContents,
    )

    match block:
        case TextContent():
            yield block.text
        case ImageContent():
            yield _read_image("image", block.mime_type, block.data)
        case AudioContent():
            yield f"[audio, {_describe(block.mime_type, block.data)}, left out]"
        case ResourceLink():
            yield _describe_link(block)
        case EmbeddedResource(resource=TextResourceContents() as resource):
            yield f"[{_line(f'resource {resource.uri}', resource.mime_type)}]\n{resource.text}"
        case EmbeddedResource(resource=BlobResourceContents() as resource):
            yield _read_blob(resource)


def _read_blob(resource: BlobResourceContents) -> str | FoundImage:
    """A text or an image by its bytes, whatever its server says that it is."""
    name, type_ = _line(f"resource {resource.uri}"), (resource.mime_type or "").partition(";")[0].strip().lower()
    left_out = f"[{name}, {_describe(type_ or 'of no type', resource.blob)}, left out]"
    try:
        file = _decode(resource.blob)
    except ValueError:
        return left_out
    if (text := _read_text(file)) is not None:
        return f"[{_line(name, type_)}]\n{text}"
    if type_.startswith("image/") or not isinstance(inspect_image(file), ImageProblem):
        return _read_image(name, type_, resource.blob)
    return left_out


def _read_text(file: bytes) -> str | None:
    """None where the bytes are no text."""
    try:
        text = file.decode()
    except UnicodeDecodeError:
        return None
    return None if _BINARY.search(text) else text


def _read_image(name: str, type_: str, data: str) -> str | FoundImage:
    """The image, whatever its server says that it is."""
    try:
        file = _decode(data)
    except ValueError:
        file = b""
    found = ImageProblem.TOO_LARGE if len(file) > LARGEST_IMAGE else inspect_image(file)
    if isinstance(found, ImageProblem):
        return f"[{name}, {_describe(type_, data)}, left out: {found}]"
    kind, width, height = found
    image = ToolImage(type=kind, data=base64.b64encode(file).decode())
    return FoundImage(image=image, description=f"{name}, {kind}, {width:,} × {height:,} pixels")


def _describe_link(link: ResourceLink) -> str:
    size = count(link.size, "byte") if link.size is not None else None
    about = _line(f"link to the resource {link.uri}", link.title or link.name, link.mime_type, size)
    return f"[{about}]" if not link.description else f"[{about}: {' '.join(link.description.split())}]"


def _describe(type_: str, data: str) -> str:
    return _line(type_, count(len(data.rstrip("=")) * 3 // 4, "byte"))


def _line(*words: str | None) -> str:
    """On one line."""
    first, *others = (" ".join(word.split()) for word in words if word)
    return ", ".join((first, *others))


def _decode(data: str) -> bytes:
    """Raises `ValueError`."""
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except binascii.Error as exc:
        raise ValueError(str(exc)) from exc
