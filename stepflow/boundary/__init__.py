"""Change GitHub: the only door, opened once (house.md "Rooms").

Takes: a `FlowResult`, settings, the workflow token. Gives: effects planned, receipts of effects written.
May touch: GitHub, git push. `GitHubWriter` and `BundlePush` are imported from their modules: they cost time to load.
"""

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
