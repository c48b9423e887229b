"""Which branch the commits of a run go to: one that is ours to write, or a new one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.boundary.settings import Refused
from stepflow.errors import BoundaryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepflow.boundary.git import Git

MOST_BRANCHES = 20
HEADS = "refs/heads/"


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """The commit that now is the tip of the branch; `note` is what else people should know of it."""

    branch: str
    commit: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Branches:
    """The branches of the server whose name begins like ours, and its default branch."""

    tips: dict[str, str]
    default: str

    def demand_other_than_default(self, branch: str) -> None:
        """Raises `Refused` for the default branch, which no run writes to."""
        if branch == self.default:
            raise Refused(f"refused: {branch} is the repository's default branch")

    def names(self, branch: str) -> list[str]:
        """The names that the commits may go to, best first. Raises `Refused` for the default branch."""
        self.demand_other_than_default(branch)
        names = [branch, *(f"{branch}-{number}" for number in range(2, MOST_BRANCHES + 1))]
        return [name for name in names if name != self.default]

    def choose(self, branch: str, is_ours: Callable[[str], bool]) -> str:
        """The branch that is ours by its tip, else the first free name."""
        names = self.names(branch)
        ours = next((name for name in names if name in self.tips and is_ours(self.tips[name])), None)
        chosen = ours or next((name for name in names if name not in self.tips), None)
        if chosen is None:
            raise BoundaryError(
                f"{branch} and {MOST_BRANCHES - 1} more branches like it hold somebody else's commits.",
                hint="Delete those that are not needed any more.",
            )
        return chosen


def moved_on(branch: str, tip: str, base: str) -> Refused:
    """Nothing is put on top of what others have pushed since the run began at the commit `base`; `tip` is empty where
    they have deleted the branch."""
    now = f"now stands at {tip[:12]}" if tip else "is gone"
    return Refused(
        f"refused: somebody else has changed the branch {branch} meanwhile: it {now}, and the run began at "
        f"{base[:12]}. Nothing was pushed.",
        hint="Start the run again with a comment `/stepflow run` on the pull request.",
    )


def read_branches(git: Git, url: str, branch: str) -> Branches:
    """The branches of the server now."""
    tips, default = {}, ""
    for line in git.run_remote("ls-remote", "--symref", url, "HEAD", f"{HEADS}{branch}*").decode().splitlines():
        value, _, name = line.partition("\t")
        if name == "HEAD" and value.startswith("ref: "):
            default = value.removeprefix("ref: ").removeprefix(HEADS)
        elif name.startswith(HEADS):
            tips[name.removeprefix(HEADS)] = value
    return Branches(tips=tips, default=default)
