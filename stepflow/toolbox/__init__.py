"""Run what the model or a validator asks, with no secret in reach (house.md "Rooms").

Takes: tool calls and commands. Gives: results; `Toolbox` implements the ports `Tools` and `Commands`.
May touch: processes, the checkout.
"""

from stepflow.toolbox.box import Toolbox
from stepflow.toolbox.copies import commit_everything, copy_checkout, rehearsal_folder
from stepflow.toolbox.credentials import Findings, find_credentials
from stepflow.toolbox.credentials.places import entry_of as git_entry
from stepflow.toolbox.environment import SYSTEM_PATH, check_pass_env
from stepflow.toolbox.isolation import Layer
from stepflow.toolbox.options import LAYERS, ProcessLimits, ToolboxOptions, UserPolicy
from stepflow.toolbox.own_process import close_process, wipe_variables
from stepflow.toolbox.packages import check_packages, install_packages
from stepflow.toolbox.restore import CheckoutRestore, credentials_away, mend_checkouts
from stepflow.toolbox.selftest import Canary, CanaryReport, Outside, try_canaries

__all__ = [
    "LAYERS",
    "SYSTEM_PATH",
    "Canary",
    "CanaryReport",
    "CheckoutRestore",
    "Findings",
    "Layer",
    "Outside",
    "ProcessLimits",
    "Toolbox",
    "ToolboxOptions",
    "UserPolicy",
    "check_packages",
    "check_pass_env",
    "close_process",
    "commit_everything",
    "copy_checkout",
    "credentials_away",
    "find_credentials",
    "git_entry",
    "install_packages",
    "mend_checkouts",
    "rehearsal_folder",
    "try_canaries",
    "wipe_variables",
]
