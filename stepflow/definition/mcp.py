"""MCP servers as agent.json declares them, and the tools that the lock file next to it pins."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pydantic import BaseModel, ConfigDict, ValidationError

from stepflow.definition.agent import Agent
from stepflow.definition.diagnostics import FileProblems, did_you_mean
from stepflow.definition.file_models import McpServerEntry
from stepflow.definition.folder import AgentFolder, read_object
from stepflow.definition.parsing import Pointer
from stepflow.domain.agent.agent_settings import MCP_PREFIX, SECRET_REFERENCE, McpServer, McpTool, digest_of, mcp_name
from stepflow.domain.connection import address_problem
from stepflow.domain.json import JsonObject, escape_unseen
from stepflow.domain.secrets import find_secrets
from stepflow.domain.text import is_invisible
from stepflow.domain.value_errors import describe_error

LOCK_FILE = "mcp.lock.json"

#: Without two underscores in a row, so that `mcp__<server>__<tool>` can be read in one way only.
_SERVER_NAME = re.compile(r"[A-Za-z0-9]+([_-][A-Za-z0-9]+)*")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
#: Headers that contain nothing but a credential.
_LOGIN_HEADER = re.compile(r"(proxy-)?authorization|cookie|(x-)?api-key", re.IGNORECASE)
_TRAVELS = "what is asked and answered"
#: The names that the Messages API allows for a tool, and for a property of its arguments.
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_PROPERTY_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


def check_servers(agent: Agent) -> None:
    """Check `mcpServers`."""
    for name, entry in agent.file.mcp_servers.items():
        at = Pointer("/mcpServers") / name
        _check_server(name, entry, at, agent.problems)
        _check_headers(entry.headers, at / "headers", agent.problems)
        _check_credentials(entry, at, agent.problems)


def _check_server(name: str, entry: McpServerEntry, at: Pointer, problems: FileProblems) -> None:
    if not _SERVER_NAME.fullmatch(name):
        message = "this name cannot be part of the names of its tools"
        problems.report("SF211", at, message, 'Use letters and digits, with single "-" or "_" between them.')
    if bool(entry.command) == bool(entry.url):
        message = f'it has {"both" if entry.url else "neither"} "command" {"and" if entry.url else "nor"} "url"'
        fix = 'Write "command" for a program that runs in the sandbox, or "url" for a server to call over https.'
        problems.report("SF211", at, message, fix)
        return
    kind, key = ("http", "url") if entry.url else ("stdio", "command")
    if entry.type not in (None, kind):
        message = f'"type" is "{entry.type}", but a server with a "{key}" is "{kind}"'
        problems.report("SF211", at / "type", message, f'Write "type": "{kind}", or leave it out.')
    for idle in ("args", "env") if entry.url else ("headers",):
        if idle in entry.model_fields_set:
            problems.note_idle(at / idle, f'"{idle}" has no effect with "{key}"')
    if entry.url and (why := address_problem(entry.url, secret=_TRAVELS)):
        fix = "Give an https address without user, query and fragment. Only this machine may be called over http."
        problems.report("SF211", at / "url", f"the address cannot be used: {why}", fix)
    for variable, value in entry.env.items():
        if "${" in value:
            message = f'"{variable}" contains "${{…}}", which is not replaced: no secret enters the sandbox'
            fix = 'Write the value itself. A server that needs a secret has a "url", and the secret in "headers".'
            problems.report("SF211", at / "env" / variable, message, fix)


def _check_headers(headers: Mapping[str, str], at: Pointer, problems: FileProblems) -> None:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or any(map(is_invisible, value)):
            fix = "Use the name of one header, and a value on one line."
            problems.report("SF211", at / name, f'"{name}" is not a header that can be sent', fix)
        if "${" in SECRET_REFERENCE.sub("", value):
            message = f'"{name}" contains a "${{" that refers to no secret'
            problems.report("SF211", at / name, message, "Write ${NAME}, with a name of the input `mcp-secrets`.")


def _check_credentials(entry: McpServerEntry, at: Pointer, problems: FileProblems) -> None:
    texts = {at / "url": entry.url or "", at / "command": entry.command or ""}
    texts |= {at / "args" / index: text for index, text in enumerate(entry.args)}
    texts |= {at / "env" / name: text for name, text in entry.env.items()}
    texts |= {at / "headers" / name: text for name, text in entry.headers.items()}
    fix = 'Revoke it. Give a new one in the input `mcp-secrets`, and write "${NAME}" in "headers" instead.'
    kinds = {place: [kind for _, kind in find_secrets(text.splitlines())] for place, text in texts.items()}
    for name, value in entry.headers.items():
        if _LOGIN_HEADER.fullmatch(name) and value.strip() and not SECRET_REFERENCE.search(value):
            kinds[at / "headers" / name].append(name)
    for place, found in kinds.items():
        if found:
            problems.report("SF212", place, f"this looks like a credential ({found[0]})", fix)


class _LockedServer(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    digest: str
    tools: list[McpTool]


class _Lock(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    servers: dict[str, _LockedServer]


def lock_text(servers: Iterable[McpServer]) -> str:
    """Return the lock file for servers with the tools that they list now. It is sorted, and shows a reviewer
    everything that a model would read: invisible characters are escaped."""
    tools = {server.name: sorted(server.tools, key=lambda tool: tool.name) for server in servers}
    lock = _Lock(servers={name: _LockedServer(digest=digest_of(each), tools=each) for name, each in tools.items()})
    return (
        escape_unseen(json.dumps(lock.model_dump(by_alias=True), indent=2, sort_keys=True, ensure_ascii=False)) + "\n"
    )


def pinned_tools(text: str) -> Mapping[str, tuple[McpTool, ...]]:
    """Server name → the tools that a lock file pins; empty when the file is malformed."""
    try:
        return {
            name: tuple(entry.tools)
            for name, entry in _Lock.model_validate_json(text, by_alias=True, by_name=False).servers.items()
        }
    except ValidationError:
        return {}


@dataclass(frozen=True, kw_only=True)
class LockedServers:
    """`servers` have the pinned tools; `offered` maps `mcp__<server>`, which means all tools of a server, to the
    names of those that a model can be offered."""

    servers: tuple[McpServer, ...] = ()
    offered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_lock(agent: Agent, folder: AgentFolder) -> LockedServers:
    """Return the agent's servers with the tools that its lock file pins."""
    servers, problems = agent.mcp_servers, agent.problems
    lock = problems.diagnostics.of(LOCK_FILE)
    fix = f"Run `stepflow mcp lock {folder.name}`, read what it changed, and commit it."
    entries = _read_entries(folder, lock, fix) if folder.has(LOCK_FILE) else {}
    if entries is None:
        return LockedServers(servers=servers)
    names = [server.name for server in servers]
    for name in sorted(entries.keys() - set(names)):
        message = f'agent.json has no MCP server "{name}"{did_you_mean(name, names)}'
        lock.add("SF213", Pointer("/servers") / name, message, fix)
    pinned = [_pin(server, entries.get(server.name), problems, lock, fix) for server in servers]
    offered = {
        f"{MCP_PREFIX}{server.name}": tuple(_offered_tools(server, entries[server.name], lock, fix))
        for server in pinned
        if server.digest
    }
    return LockedServers(servers=tuple(pinned), offered=offered)


def _read_entries(folder: AgentFolder, lock: FileProblems, fix: str) -> Mapping[str, _LockedServer] | None:
    document = read_object(folder, lock, what="lock of the MCP servers")
    try:
        return _Lock.model_validate(document, by_alias=True, by_name=False).servers if document is not None else None
    except ValidationError as exc:
        error = exc.errors(include_url=False)[0]
        at = Pointer()
        for key in error["loc"]:
            at = at / key
        lock.add(
            "SF213",
            at,
            f"the lock is not of the form in which it is written ({error['loc'][-1]} {describe_error(error)})",
            fix,
        )
        return None


def _pin(
    server: McpServer, entry: _LockedServer | None, problems: FileProblems, lock: FileProblems, fix: str
) -> McpServer:
    """Return the server with its tools and their digest, or unchanged after a problem."""
    if entry is None:
        at = Pointer("/mcpServers") / server.name
        problems.report("SF213", at, f'"{LOCK_FILE}" does not pin its tools', fix)
        return server
    if entry.digest != digest_of(entry.tools):
        at = Pointer("/servers") / server.name / "digest"
        lock.report("SF213", at, "the digest does not match the tools, so somebody changed the file by hand", fix)
        return server
    return replace(server, tools=tuple(entry.tools), digest=entry.digest)


def _offered_tools(server: McpServer, entry: _LockedServer, lock: FileProblems, fix: str) -> Iterator[str]:
    for index, tool in enumerate(entry.tools):
        name = mcp_name(server.name, tool.name)
        if why := _why_refused(name, tool.input_schema):
            at = Pointer("/servers") / server.name / "tools" / index
            message = f'no model can be offered the tool "{tool.name}": {why}'
            lock.report("SF214", at, message, f"Do without it, or have the server changed. {fix}")
        else:
            yield name


def _why_refused(name: str, schema: JsonObject) -> str:
    """Return why the Messages API would refuse a tool, and with it the whole request; empty when it would not."""
    # As in schemas.py: agents without servers need not wait for this import.
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415

    if not _TOOL_NAME.fullmatch(name):
        return f'the name "{name}" must be letters, digits, "_" and "-", at most 128 in all'
    if schema.get("type") != "object":
        return 'its arguments are not of "type": "object"'
    if above := next((key for key in ("anyOf", "oneOf", "allOf") if key in schema), ""):
        return f'the schema of its arguments begins with "{above}"'
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as exc:
        return f"the schema of its arguments is not valid: {exc.message[:200]}"
    properties = schema.get("properties")
    odd = [key for key in properties if not _PROPERTY_NAME.fullmatch(key)] if isinstance(properties, dict) else []
    return f'the argument "{odd[0]}" must be named with letters, digits, "_", "." and "-", at most 64' if odd else ""
