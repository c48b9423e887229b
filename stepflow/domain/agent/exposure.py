"""What meets in the conversation of one step, by the rule of two (SECURITY.md)."""

from __future__ import annotations

from dataclasses import dataclass

#: What a message calls the rule.
RULE_OF_TWO = "rule of two"


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """What meets in a step's conversation, in a private repository or in a public one. Each part names where it is
    from."""

    step_id: str
    private_repository: bool
    #: Text that strangers can write.
    untrusted: tuple[str, ...] = ()
    #: What not everybody may see.
    private: tuple[str, ...] = ()
    #: Where what the model knows can go.
    ways_out: tuple[str, ...] = ()
    #: Why the step may have all three; empty if the definition does not say.
    accepted: str = ""

    @property
    def has_all(self) -> bool:
        """Whether all three meet."""
        return bool(self.untrusted and self.private and self.ways_out)

    @property
    def breaks_rule(self) -> bool:
        """Whether all three meet and nobody accepts it."""
        return self.has_all and not self.accepted

    @property
    def repository(self) -> str:
        """The kind of repository."""
        return "private" if self.private_repository else "public"

    def __str__(self) -> str:
        return "; ".join(f"{part} ({', '.join(sources)})" for part, sources in self.parts.items() if sources)

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """Where each of the three is from, by its name; empty for one that is not there."""
        return {
            "text that strangers can write": self.untrusted,
            "something private": self.private,
            "a way out": self.ways_out,
        }
