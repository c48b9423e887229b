"""Secrets: which variables hold one, which text formats give one away, and how to keep texts and git packs free of
them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import IO, TYPE_CHECKING
from urllib.parse import quote, quote_plus

from stepflow.domain.json import JsonValue, map_texts
from stepflow.domain.text import ANSI, is_invisible

if TYPE_CHECKING:
    from detect_secrets.plugins.base import BasePlugin, RegexBasedDetector

MASK = "***"
#: Shorter values are not masked: they would match ordinary words, and are hardly secret.
SHORTEST_SECRET = 6
#: A tool may print a single line of a multi-line key. Shorter lines are common text such as `{`.
SHORTEST_LINE = 20
#: Encoders wrap their output: any two characters may be separated by spaces or by a real or JSON-escaped line break.
GAP = r"(?>(?:\\[nrt]|[\s:])*)"


class Redactor:
    """Replaces every secret with `***`: raw, JSON-escaped, URL-encoded, in hex, and in base64 at any offset. Matches
    secrets even if invisible characters are inserted."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = tuple(secrets)
        known = {piece for secret in self._secrets for piece in _pieces(secret)}
        exact = {form for secret in known for form in _exact_forms(secret)}
        # Longest first: masking a short form inside a longer one would leave the rest of the longer one visible.
        self._exact = tuple(sorted(exact, key=lambda form: (-len(form), form)))
        encoded = {pattern for secret in known for pattern in _encoded_forms(secret)}
        self._encoded = tuple(re.compile(pattern) for pattern in sorted(encoded, key=lambda p: (-len(p), p)))

    def knowing(self, *secrets: str) -> Redactor:
        """Return a redactor that also knows these secrets."""
        return Redactor((*self._secrets, *secrets))

    def __call__(self, text: str) -> str:
        """Return the text with every known form of every secret masked."""
        for form in self._exact:
            text = text.replace(form, MASK)
        for pattern in self._encoded:
            text = pattern.sub(MASK, text)
        seen, places = _visible_part(text)
        if len(seen) == len(text):
            return text
        forms = {form for form in (_visible_part(form)[0] for form in self._exact) if len(form) >= SHORTEST_SECRET}
        encoded = (match.span() for pattern in self._encoded for match in pattern.finditer(seen))
        return _mask_spans(text, (*_occurrences(seen, forms), *encoded), places)


def _visible_part(text: str) -> tuple[str, Sequence[int]]:
    """Return the visible part of a text, and the position of each of its characters in the text."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text, range(len(text))
    unseen = {character for character in set(text) if character not in "\n\t" and is_invisible(character)}
    if not unseen:
        return text, range(len(text))
    commands = {place for match in ANSI.finditer(text) for place in range(*match.span())}
    places = [place for place, each in enumerate(text) if each not in unseen and place not in commands]
    return "".join(text[place] for place in places), places


def _occurrences(text: str, values: Iterable[str]) -> Iterator[tuple[int, int]]:
    for value in values:
        begin = text.find(value)
        while begin >= 0:
            yield begin, begin + len(value)
            begin = text.find(value, begin + len(value))


def _mask_spans(text: str, spans: Iterable[tuple[int, int]], places: Sequence[int]) -> str:
    """Return the text with `***` for each span of its visible part. Overlapping spans are merged."""
    parts, after, last = list[str](), 0, 0
    for begin, end in sorted(spans):
        if begin >= last:
            parts += (text[after : places[begin]], MASK)
        last = max(last, end)
        after = max(after, places[last - 1] + 1)
    return "".join((*parts, text[after:]))


def redact_value(value: JsonValue, redact: Callable[[str], str]) -> JsonValue:
    """Return the JSON value with every string and key redacted.

    Redacting values instead of serialized text cannot break the JSON around them.
    """
    return map_texts(value, redact)


def _pieces(secret: str) -> Iterator[str]:
    whole = secret.strip()
    if len(whole) >= SHORTEST_SECRET:
        yield whole
        yield from (line.strip() for line in whole.splitlines() if len(line.strip()) >= SHORTEST_LINE)


def _exact_forms(secret: str) -> Iterator[str]:
    yield secret
    for ascii_only in (False, True):
        once = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        yield once
        yield json.dumps(once, ensure_ascii=ascii_only)[1:-1]
    data = secret.encode("utf-8", "surrogatepass")
    for quoted in (quote(data, safe=""), quote(data), quote_plus(data)):
        yield quoted
        yield re.sub(r"%..", lambda match: match[0].lower(), quoted)


def _encoded_forms(secret: str) -> Iterator[str]:
    data = secret.encode("utf-8", "surrogatepass")
    yield "(?i:" + GAP.join(data.hex()) + ")"
    for offset in range(3):
        core = _base64_core(data, offset)
        yield GAP.join(map(re.escape, core))
        yield GAP.join(map(re.escape, core.replace("+", "-").replace("/", "_")))


def _base64_core(data: bytes, offset: int) -> str:
    """Return the base64 characters that depend on `data` alone, with `offset` bytes before it and anything after it."""
    encoded = base64.b64encode(b"\0" * offset + data).decode()
    first = -(-offset * 8 // 6)
    last = (offset + len(data)) * 8 // 6
    return encoded[first:last]


#: Variables whose value is a credential.
_SECRET_NAMES = re.compile(
    r"ACTIONS_ID_TOKEN_REQUEST_(?:URL|TOKEN)"
    r"|ANTHROPIC_(?:\w+_)?(?:API_KEY|AUTH_TOKEN|IDENTITY_TOKEN)|ANTHROPIC_CUSTOM_HEADERS"
    r"|AWS_(?:ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|SECURITY_TOKEN|BEARER_TOKEN_\w+)"
    r"|AWS_CONTAINER_AUTHORIZATION_TOKEN"
    r"|GOOGLE_(?:CREDENTIALS|OAUTH_ACCESS_TOKEN)|CLOUDSDK_AUTH_ACCESS_TOKEN"
    r"|(?:AZURE|ARM)_(?:CLIENT_SECRET|CLIENT_CERTIFICATE_PASSWORD|PASSWORD|CREDENTIALS|ACCESS_KEY|SAS_TOKEN)"
    r"|ARM_OIDC_(?:REQUEST_)?TOKEN|IDENTITY_HEADER|MSI_SECRET"
)
#: Variables whose value leads to a credential: a file, a profile, or a URL that issues one.
_NAMES_OF_PLACES = re.compile(
    r"ANTHROPIC_(?:IDENTITY_TOKEN_FILE|CONFIG_DIR|PROFILE)"
    r"|AWS_(?:WEB_IDENTITY_TOKEN_FILE|SHARED_CREDENTIALS_FILE|CONFIG_FILE|(?:DEFAULT_)?PROFILE)"
    r"|AWS_CONTAINER_(?:CREDENTIALS_(?:RELATIVE|FULL)_URI|AUTHORIZATION_TOKEN_FILE)"
    r"|GOOGLE_(?:APPLICATION_CREDENTIALS|GHA_CREDS_PATH)|CLOUDSDK_AUTH_\w+"
    r"|AZURE_(?:FEDERATED_TOKEN_FILE|CLIENT_CERTIFICATE_PATH|CONFIG_DIR)"
    r"|ARM_OIDC_(?:TOKEN_FILE_PATH|REQUEST_URL)|(?:IDENTITY|MSI)_ENDPOINT"
)
#: The variables among them that name a file.
_NAMES_OF_FILES = re.compile(
    r"(?:ANTHROPIC_IDENTITY|AWS_WEB_IDENTITY|AZURE_FEDERATED)_TOKEN_FILE|AWS_SHARED_CREDENTIALS_FILE"
    r"|GOOGLE_(?:APPLICATION_CREDENTIALS|GHA_CREDS_PATH)|CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE"
    r"|AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE|ARM_OIDC_TOKEN_FILE_PATH|AZURE_CLIENT_CERTIFICATE_PATH"
)
#: Other settings of a model's service. They are not secret; tools may see them if the workflow passes them on.
_PLAIN_NAMES = re.compile(
    r"AWS_(?:DEFAULT_)?REGION|CLOUD_ML_REGION|ANTHROPIC_VERTEX_PROJECT_ID|(?:GOOGLE_CLOUD|GCLOUD)_PROJECT"
    r"|ANTHROPIC_FOUNDRY_RESOURCE|ANTHROPIC_WORKSPACE_ID"
)


def holds_login(name: str) -> bool:
    """Return whether the variable's name alone makes its value a secret."""
    return bool(_SECRET_NAMES.fullmatch(name))


def logs_in(name: str) -> bool:
    """Return whether the variable holds a credential or leads to one. No tool may ever see it."""
    return holds_login(name) or bool(_NAMES_OF_PLACES.fullmatch(name))


def login_files(login: Mapping[str, str]) -> tuple[str, ...]:
    """Return the credential files that the variables name."""
    return tuple(dict.fromkeys(value for name, value in login.items() if _NAMES_OF_FILES.fullmatch(name)))


def login_of(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the non-empty variables of an environment that model services may read."""
    return MappingProxyType(
        {name: value for name, value in environ.items() if value and (logs_in(name) or _PLAIN_NAMES.fullmatch(name))}
    )


#: Credential formats and their names come from detect-secrets. Text that only looks random, or only follows the word
#: "password", does not count. detect-secrets gets lines in pieces that overlap by half: some of its patterns take
#: quadratic time.
_PIECE = 2_000
#: Formats that detect-secrets does not know, or does not match to the end. These patterns take linear time and match
#: credentials of any length. If a pattern has a group, the group is the credential.
_OWN_PATTERNS = {
    "Anthropic key": re.compile(r"sk-ant-[A-Za-z0-9_-]{20,}"),
    "GitHub fine-grained token": re.compile(r"github_pat_[A-Za-z0-9_]{36,}"),
    # Header and claims are JSON objects in base64: `eyJ` is `{"`, and `ew` is `{` before a line break.
    "JSON Web Token": re.compile(
        r"(?<![\w=-])(?>[\w=-]*?(?=eyJ))(eyJ[\w=-]++\.e[wy][\w=-]++(?:\.[\w+/=-]*+)*+)", re.ASCII
    ),
}
#: Part of the sample keys in AWS's documentation.
_EXAMPLE = "EXAMPLE"
#: Patterns with mostly false positives: documentation contains URLs such as `http://user:password@host`.
_VAGUE = frozenset({"Basic Auth Credentials", "Public IP (ipv4)"})
_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL
)


def find_secrets(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the 0-based line and the kind of each credential in a text as people see it."""
    for number, line in enumerate(lines):
        yield from ((number, kind) for kind in dict.fromkeys(kind for kind, _ in _secrets(_visible_part(line)[0])))


def mask_secrets(text: str) -> str:
    """Return the text with every visible credential replaced with `***`."""
    seen, places = _visible_part(text)
    keys = (match.span() for match in _PRIVATE_KEY.finditer(seen))
    values = {value for line in seen.split("\n") for _, value in _secrets(line)}
    return _mask_spans(text, (*keys, *_occurrences(seen, values)), places)


def _secrets(line: str) -> Iterator[tuple[str, str]]:
    for kind, pattern in _OWN_PATTERNS.items():
        yield from ((kind, match[match.lastindex or 0]) for match in pattern.finditer(line))
    for begin in range(0, max(len(line) - _PIECE // 2, 1), _PIECE // 2):
        piece = line[begin : begin + _PIECE]
        for each in _detectors():
            # Some patterns capture only part of the credential, and some detectors check more than their patterns.
            patterns = each.denylist if any(each.analyze_string(piece)) else ()
            found = (match[0] for pattern in patterns for match in pattern.finditer(piece))
            yield from ((each.secret_type, value) for value in found if _EXAMPLE not in value)


@cache
def _detectors() -> tuple[RegexBasedDetector, ...]:
    # This import loads requests, as PyGithub does; most of a run does not need it.
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class  # noqa: PLC0415
    from detect_secrets.plugins.base import RegexBasedDetector  # noqa: PLC0415

    kinds: Mapping[str, type[BasePlugin]] = get_mapping_from_secret_type_to_class()
    by_pattern = (make for kind, make in kinds.items() if kind not in _VAGUE and kind not in _OWN_PATTERNS)
    return tuple(make() for make in by_pattern if issubclass(make, RegexBasedDetector))


#: The most that is unpacked: a crafted pack of a few kilobytes can expand to more.
MOST_BYTES = 2 * 1024 * 1024 * 1024
_CHUNK_SIZE = 1024 * 1024
_PACK_HEADER = b"PACK\0\0\0\2"
#: Object types (gitformat-pack). The other types are deltas.
_KINDS = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}


class UnsearchablePack(Exception):
    """The objects of the pack cannot be read."""


def secrets_to_find(secrets: Iterable[str]) -> frozenset[bytes]:
    """Return the secrets in the forms in which files contain them."""
    return frozenset(secret.strip().encode() for secret in secrets if len(secret.strip()) >= SHORTEST_SECRET)


def pack_holds_secret(file: IO[bytes], secrets: Collection[bytes]) -> bool:
    """Return whether any object of the pack contains a secret: in a file, a message, a person's name, or a path. The
    pack begins at the current position of `file` and must have been made without deltas. Raise `UnsearchablePack` if it
    cannot be read."""
    return any(entry.has_secret for entry in search_pack(file, secrets))


@dataclass(frozen=True, kw_only=True)
class PackedObject:
    """An object in a pack. `kind` is commit, tree, blob or tag; `name` is its git object id."""

    kind: str
    name: str
    has_secret: bool


def search_pack(file: IO[bytes], secrets: Collection[bytes], *, object_format: str = "sha1") -> Iterator[PackedObject]:
    """Yield every object of a pack that was made without deltas, after reading it to the end. Raise `UnsearchablePack`
    if the pack cannot be read."""
    pack = _Pack(file)
    if pack.read(len(_PACK_HEADER)) != _PACK_HEADER:
        raise UnsearchablePack("it is not a pack")
    left, longest = MOST_BYTES, max(map(len, secrets), default=0)
    for _ in range(int.from_bytes(pack.read(4), "big")):
        kind, size = pack.begin()
        digest = hashlib.new(object_format, f"{kind} {size}\0".encode(), usedforsecurity=False)
        tail, has_secret = b"", False
        for piece in pack.content():
            left -= len(piece)
            size -= len(piece)
            if left < 0:
                raise UnsearchablePack(f"it unpacks to more than {MOST_BYTES} bytes")
            digest.update(piece)
            seen = tail + piece
            has_secret = has_secret or any(secret in seen for secret in secrets)
            tail = seen[-longest:] if longest else b""
        if size:
            raise UnsearchablePack("an object in it has a different size than it says")
        yield PackedObject(kind=kind, name=digest.hexdigest(), has_secret=has_secret)


class _Pack:
    """Reads the objects of a pack in sequence."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._ahead = file, b""

    def read(self, size: int) -> bytes:
        while len(self._ahead) < size:
            self._ahead += self._more()
        data, self._ahead = self._ahead[:size], self._ahead[size:]
        return data

    def begin(self) -> tuple[str, int]:
        """Return the kind and size of the object that begins here."""
        byte = self.read(1)[0]
        kind, size, shift = _KINDS.get(byte >> 4 & 7), byte & 0x0F, 4
        while byte & 0x80:
            byte = self.read(1)[0]
            size |= (byte & 0x7F) << shift
            shift += 7
        if kind is None:
            raise UnsearchablePack("it holds an object only as what differs from another one")
        return kind, size

    def content(self) -> Iterator[bytes]:
        """Yield the content of the current object in pieces."""
        stream = zlib.decompressobj()
        given = self._ahead
        while not stream.eof:
            try:
                piece = stream.decompress(given, _CHUNK_SIZE)
            except zlib.error as exc:
                raise UnsearchablePack("it is damaged") from exc
            yield piece
            given = stream.unconsumed_tail
            if not given and not stream.eof and len(piece) < _CHUNK_SIZE:
                given = self._more()
        self._ahead = stream.unused_data

    def _more(self) -> bytes:
        data = self._file.read(_CHUNK_SIZE)
        if not data:
            raise UnsearchablePack("it ends too early")
        return data
