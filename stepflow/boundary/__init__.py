"""Change GitHub: the only door, opened once (house.md "Rooms").

Takes: a `FlowResult`, settings, the workflow token. Gives: effects planned, receipts of effects written.
May touch: GitHub, git push. `GitHubWriter` and `BundlePush` are imported from their modules: they cost time to load.
"""

from typing import TYPE_CHECKING

from stepflow.door import open_when_asked

if TYPE_CHECKING:
    from stepflow.boundary.actor import check_actor
    from stepflow.boundary.apply import ApplyResult, apply_effects
    from stepflow.boundary.failure import FailureReport, report_failure
    from stepflow.boundary.outlet import Outlet, filter_line, filter_text
    from stepflow.boundary.patience import Patience
    from stepflow.boundary.plan import Plan, branch_name, plan_effects
    from stepflow.boundary.planner import CommitsInfo
    from stepflow.boundary.settings import BoundarySettings
    from stepflow.boundary.writer import Account, Pushed, Pusher, Refused, WriteFailed, Writer

__all__ = [
    "Account",
    "ApplyResult",
    "BoundarySettings",
    "CommitsInfo",
    "FailureReport",
    "Outlet",
    "Patience",
    "Plan",
    "Pushed",
    "Pusher",
    "Refused",
    "WriteFailed",
    "Writer",
    "apply_effects",
    "branch_name",
    "check_actor",
    "filter_line",
    "filter_text",
    "plan_effects",
    "report_failure",
]

# A type checker is to know the names above and no others.
if not TYPE_CHECKING:
    __getattr__ = open_when_asked(
        __name__,
        {
            "actor": "check_actor",
            "apply": "ApplyResult apply_effects",
            "failure": "FailureReport report_failure",
            "outlet": "Outlet filter_line filter_text",
            "patience": "Patience",
            "plan": "Plan branch_name plan_effects",
            "planner": "CommitsInfo",
            "settings": "BoundarySettings",
            "writer": "Account Pushed Pusher Refused WriteFailed Writer",
        },
    )
