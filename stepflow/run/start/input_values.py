"""How the text of an input becomes a value."""

from __future__ import annotations

import json
import re
import unicodedata
from base64 import b64decode
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    model_validator,
)

from stepflow.domain.json import JsonObject
from stepflow.domain.text import strip_unseen
from stepflow.domain.words import Allowance, Network, Permission, StartEvent
from stepflow.errors import InputError


def empty_to_none(value: object) -> object:
    """Treat an empty string as an input that is not set."""
    return None if isinstance(value, str) and not value.strip() else value


def read_flag(value: object) -> object:
    """Parse true or false in the spellings that GitHub's toolkit for JavaScript actions accepts."""
    words = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
    if isinstance(value, str) and value.strip() in words:
        return words[value.strip()]
    if isinstance(value, bool):
        return value
    raise ValueError("write true or false")


def demand_any_permission(value: Permission) -> Permission:
    """Refuse `none`, a minimum that everybody meets."""
    if value is Permission.NONE:
        raise ValueError("write read, triage, write, maintain or admin")
    return value


def split_words(value: object) -> object:
    """Split words at commas and blanks."""
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


def split_lines(value: object) -> object:
    """Split a string into lines, without the blank ones."""
    return tuple(line for line in value.splitlines() if line.strip()) if isinstance(value, str) else value


def split_names(value: object) -> object:
    """Split a string into lines without the blanks around each."""
    return tuple(line.strip() for line in value.splitlines() if line.strip()) if isinstance(value, str) else value


def split_labels(value: object) -> object:
    """Split a string into lines, each the name of a label. A comma may belong to a name, but hardly ever does."""
    if isinstance(value, str) and "," in value:
        raise ValueError("write one label per line, or a YAML list, in which a name may have a comma")
    return split_names(value)


_NUMBER = re.compile(r"(?:#|GH-)?(?P<number>\d{1,18})(?:\.0+)?", re.IGNORECASE | re.ASCII)
_ADDRESS = re.compile(
    r"(?:(?P<server>https?://[^/\s]+)/)?(?P<repository>[\w.-]+/[\w.-]+)(?:/(?:issues|pull)/|#)(?P<number>\d{1,18})"
    r"(?:[/?#]\S*)?",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, kw_only=True)
class IssueReference:
    """An issue as somebody named it. `repository` and `server` are empty for a number alone."""

    number: int
    repository: str = ""
    server: str = ""

    def __str__(self) -> str:
        """Return the issue in a form that `parse_issue` reads, as the journal keeps it."""
        return f"{self.server}/{self.repository}#{self.number}".lstrip("/")

    def number_in(self, repository: str, server_url: str) -> int:
        """Return the number. Raises `InputError` if the issue is in another repository."""
        here = (repository.casefold(), urlsplit(server_url).netloc.casefold())
        server = urlsplit(self.server).netloc.casefold() or here[1]
        if self.repository and (self.repository.casefold(), server) != here:
            where = f"{self.server}/{self.repository}".lstrip("/")
            raise InputError(
                f"The issue {self.number} is in {where}, and the run is in {repository or 'no known repository'}.",
                hint="Start the workflow of that repository, or name an issue of this one by its number.",
            )
        return self.number


def parse_issue(value: object) -> IssueReference | None:
    """Parse the number of an issue as people write it: `7`, `#7`, `GH-7`, `owner/name#7`, or its address. None if there
    is no text."""
    plain = unicodedata.normalize("NFKC", strip_unseen(str(value or ""))).strip()
    text = "".join(str(unicodedata.decimal(each)) if each.isdecimal() else each for each in plain)
    if not text:
        return None
    match = _NUMBER.fullmatch(text) or _ADDRESS.fullmatch(text)
    if match is None or int(match["number"]) == 0:
        raise ValueError(f"{text[:100]!r} is not the number of an issue; write it as 7 or #7, or give its address")
    places = match.groupdict("")
    return IssueReference(
        number=int(match["number"]), repository=places.get("repository", ""), server=places.get("server", "")
    )


def parse_json_numbers(value: object) -> object:
    """Parse a JSON list of issue numbers."""
    loaded = value
    if isinstance(value, str):
        try:
            loaded = json.loads(value) if value.strip() else []
        except ValueError as exc:
            raise ValueError(f"not valid JSON: {exc}") from exc
    if not isinstance(loaded, list | tuple) or not all(type(number) is int and number > 0 for number in loaded):
        raise ValueError("write a JSON list of issue numbers, such as [7, 12]")
    return tuple(loaded)


def parse_yaml_map(value: object) -> object:
    """Parse a YAML map and turn its keys into strings."""
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    from stepflow.definition.parsing import YamlFault, read_yaml  # noqa: PLC0415 - costs time that an empty input need not take

    try:
        _, loaded = read_yaml(value)
    except YamlFault as exc:
        position = f" (line {exc.line})" if exc.line else ""
        raise ValueError(f"not valid YAML: {exc.problem}{position}") from exc
    if not isinstance(loaded, dict):
        raise ValueError("write a YAML map, one `name: value` per line")
    return {str(key): item for key, item in loaded.items()}


Flag = Annotated[bool, BeforeValidator(read_flag)]
Words = Annotated[tuple[str, ...], BeforeValidator(split_words)]
Names = Annotated[tuple[str, ...], BeforeValidator(split_names)]
Labels = Annotated[tuple[str, ...], BeforeValidator(split_labels)]
IssueNumber = Annotated[
    IssueReference | None, BeforeValidator(parse_issue), PlainSerializer(str, when_used="unless-none")
]
Lines = Annotated[tuple[str, ...], BeforeValidator(split_lines)]
Numbers = Annotated[tuple[int, ...], BeforeValidator(parse_json_numbers)]
Count = Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(empty_to_none)]
Text = Annotated[str | None, BeforeValidator(empty_to_none)]
Name = Annotated[str | None, BeforeValidator(lambda value: value.strip() or None if isinstance(value, str) else value)]
Secret = Annotated[SecretStr | None, BeforeValidator(empty_to_none)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
OptionalPositive = Annotated[Positive | None, BeforeValidator(empty_to_none)]
LeastPermission = Annotated[Permission, AfterValidator(demand_any_permission)]
StartEvents = Annotated[tuple[StartEvent, ...], BeforeValidator(split_words)]
Allowances = Annotated[tuple[Allowance, ...], BeforeValidator(split_words)]


def check_header_values(values: dict[str, SecretStr]) -> dict[str, SecretStr]:
    """Refuse values that an HTTP header cannot hold."""
    for name, value in values.items():
        if not (text := value.get_secret_value()).strip() or not (text.isascii() and text.isprintable()):
            raise ValueError(f"{name} is empty, or contains what no header can")
    return values


def secret_parts(value: str) -> tuple[str, ...]:
    """Return a header's value and, if it names a scheme, the credentials after it. Those of `Basic` hold a password."""
    scheme, _, credentials = value.rpartition(" ")
    if scheme.lower() != "basic":
        return (value, credentials) if scheme else (value,)
    with suppress(ValueError):
        login = b64decode(credentials, validate=True).decode()
        return value, credentials, login, login.partition(":")[2]
    return value, credentials


_ReadMap = BeforeValidator(lambda value: parse_yaml_map(value) or {})
Map = Annotated[JsonObject, _ReadMap]
SecretMap = Annotated[dict[str, SecretStr], _ReadMap, AfterValidator(check_header_values)]


def in_dashes(name: str) -> str:
    """Turn the name of a field into the name of its input."""
    return name.replace("_", "-")


#: How a YAML map begins. The first word of a command never ends with a colon.
_MAP = re.compile(r"(?:\s|#.*\n)*(?:\{\s*[\"'}]|(?:\{\s*)?[\w-]+:(?:\s|$))")


class InputMap(BaseModel):
    """An input that is a YAML map of known keys."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=in_dashes,
        populate_by_name=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    #: The key that a text stands for if it is no map; empty: it must be one.
    text_key: ClassVar[str] = ""

    @model_validator(mode="before")
    @classmethod
    def read(cls, given: object) -> object:
        """Read a YAML map, or the text that stands for one of its keys. A key without a value counts as not set, as an
        empty input does."""
        given = cls.parse(given)
        if not isinstance(given, dict):
            return given
        return {key: value for key, value in given.items() if value is not None and value != ""}

    @classmethod
    def parse(cls, given: object) -> object:
        """Parse a text. Anything else stays as it is."""
        if not isinstance(given, str):
            return given
        if cls.text_key and not _MAP.match(given):
            return {cls.text_key: given.strip()}
        return parse_yaml_map(given) or {}


def known_keys(kind: type[BaseModel]) -> tuple[str, ...]:
    """Return the keys that a map may have, as people write them."""
    return tuple(field.alias or in_dashes(name) for name, field in kind.model_fields.items())


@dataclass(frozen=True, kw_only=True)
class NetworkAccess:
    """What tools can reach. Only `allow` has hosts."""

    reach: Network = Network.FULL
    hosts: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join(self.hosts) or str(self.reach)


def parse_network(value: object) -> NetworkAccess:
    """Parse a word, or a list of hosts."""
    if isinstance(value, NetworkAccess):
        return value
    words = split_words(value)
    if not isinstance(words, tuple | list) or not words or not all(isinstance(word, str) for word in words):
        raise ValueError("write `full`, `none`, or a list of hosts")
    if len(words) == 1 and words[0] in (Network.FULL, Network.NONE):
        return NetworkAccess(reach=Network(words[0]))
    from stepflow.sandbox.egress.allowed_hosts import parse_allowed_hosts  # noqa: PLC0415 - costs time, as above

    try:
        parse_allowed_hosts(words)
    except ValueError as exc:
        raise ValueError(f"write `full`, `none`, or a list of hosts: {exc}") from None
    return NetworkAccess(reach=Network.ALLOW, hosts=tuple(words))


NetworkInput = Annotated[
    NetworkAccess,
    PlainValidator(parse_network),
    PlainSerializer(lambda access: [*access.hosts] or str(access.reach)),
]
