"""Run what the model or a validator asks, with no secret in reach (house.md "Rooms").

Takes: tool calls and commands. Gives: results; `Toolbox` implements the ports `Tools` and `Commands`.
May touch: processes, the checkout.
"""

from stepflow.toolbox.box import Toolbox
from stepflow.toolbox.options import ProcessLimits, ToolboxOptions, UserPolicy

__all__ = ["ProcessLimits", "Toolbox", "ToolboxOptions", "UserPolicy"]
