"""GitHub's published GraphQL schema, cut down to the documents that we send, and what answers them by it.

`python -m tests.servers.github_graphql` cuts it down again, from the npm package `@octokit/graphql-schema` (MIT).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from graphql import (
    DefinitionNode,
    FieldDefinitionNode,
    FieldNode,
    GraphQLError,
    GraphQLSchema,
    InputObjectTypeDefinitionNode,
    InterfaceTypeDefinitionNode,
    NamedTypeNode,
    ObjectTypeDefinitionNode,
    TypeInfo,
    TypeInfoVisitor,
    Visitor,
    build_ast_schema,
    build_schema,
    execute_sync,
    parse,
    print_ast,
    validate,
    visit,
)

from stepflow.boundary import github_types
from stepflow.boundary.repository_reader import LEDGER_DOCUMENTS
from tests.servers.bare_repository import Rejected
from tests.servers.npm_package import fetch_member

PACKAGE = "@octokit/graphql-schema"
VERSION = "15.26.1"
SCHEMA = Path(__file__).parent / "github-schema.graphql"
DOCUMENTS = (*github_types.DOCUMENTS, *LEDGER_DOCUMENTS)

Json = dict[str, Any]


@cache
def load_schema() -> GraphQLSchema:
    """What GitHub publishes about the documents that we send."""
    return build_schema(SCHEMA.read_text(encoding="utf-8"))


def answer(body: Json, resolvers: dict[str, Callable[..., Any]]) -> tuple[Json, list[str]]:
    """The answer to a request, and what GitHub would not understand of it."""
    try:
        document = parse(body["query"])
    except GraphQLError as exc:
        return {"errors": [{"message": exc.message}]}, [f"graphql: {exc}"]
    if problems := validate(load_schema(), document):
        return {"errors": [{"message": each.message} for each in problems]}, [f"graphql: {each}" for each in problems]
    done = execute_sync(load_schema(), document, resolvers, variable_values=body["variables"])
    errors = [(each, each.original_error) for each in done.errors or ()]
    rejected = [(each, cause) for each, cause in errors if isinstance(cause, Rejected)]
    shown = [{"type": cause.kind, "path": each.path, "message": each.message} for each, cause in rejected]
    strange = [f"graphql: {each} {cause!r}" for each, cause in errors if not isinstance(cause, Rejected)]
    return {"data": done.data, **({"errors": shown} if shown else {})}, strange


def named_fields(query: str) -> str:
    """The fields of a document that are asked for at its root."""
    definition = parse(query).definitions[0]
    return " ".join(field.name.value for field in definition.selection_set.selections)  # type: ignore[attr-defined]


class _Used(Visitor):
    """The fields of each type that a document asks for."""

    def __init__(self, types: TypeInfo, used: dict[str, set[str]]) -> None:
        super().__init__()
        self._types, self._used = types, used

    def enter_field(self, node: FieldNode, *_: Any) -> None:
        parent = self._types.get_parent_type()
        assert parent is not None
        self._used.setdefault(parent.name, set()).add(node.name.value)


class _Named(Visitor):
    """The types that a definition names."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def enter_named_type(self, node: NamedTypeNode, *_: Any) -> None:
        self.names.add(node.name.value)


def _cut(text: str) -> str:
    """The types that our documents reach: of objects and interfaces the fields they ask for, inputs whole, no
    descriptions."""
    whole = parse(text, no_location=True)
    # As published, it breaks a rule or two itself.
    schema = build_ast_schema(whole, assume_valid=True)
    used: dict[str, set[str]] = {}
    for document in DOCUMENTS:
        types = TypeInfo(schema)
        node = parse(document)
        assert validate(schema, node) == []
        visit(node, TypeInfoVisitor(types, _Used(types, used)))
    definitions = {each.name.value: each for each in whole.definitions if hasattr(each, "name")}
    kept: dict[str, DefinitionNode] = {}
    waiting = list(used)
    while waiting:
        name = waiting.pop()
        if name in kept or name not in definitions:
            continue
        kept[name] = _plain(definitions[name], used)
        named = _Named()
        visit(kept[name], named)
        waiting += named.names
    return "\n\n".join(print_ast(kept[name]) for name in sorted(kept)) + "\n"


def _plain(node: Any, used: dict[str, set[str]]) -> Any:
    """A definition, field or argument without what only explains it; of an object only the fields that are used, and
    those of its interfaces that are."""
    changes: Json = {"description": None, "directives": ()}
    if isinstance(node, ObjectTypeDefinitionNode | InterfaceTypeDefinitionNode):
        changes["interfaces"] = tuple(each for each in node.interfaces or () if each.name.value in used)
        kinds = [node.name.value, *(each.name.value for each in changes["interfaces"])]
        fields = {name for kind in kinds for name in used.get(kind, ())}
        changes["fields"] = tuple(_plain(each, used) for each in node.fields or () if each.name.value in fields)
    elif isinstance(node, InputObjectTypeDefinitionNode):
        changes["fields"] = tuple(_plain(each, used) for each in node.fields or ())
    elif isinstance(node, FieldDefinitionNode):
        changes["arguments"] = tuple(_plain(each, used) for each in node.arguments or ())
    return replace(node, **changes)


if __name__ == "__main__":
    SCHEMA.write_text(_cut(fetch_member(PACKAGE, VERSION, "schema.graphql").decode()), encoding="utf-8")
    print(f"{PACKAGE}@{VERSION}: {len(DOCUMENTS)} documents in {SCHEMA}")
