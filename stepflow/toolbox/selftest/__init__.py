"""The sandbox, tried out from inside before a model is asked (security.md "self-test with planted canaries").

Takes: a running toolbox, and what lies outside. Gives: `CanaryReport`.
May touch: what is planted for it, for as long as it takes; the toolbox's processes.
"""

from stepflow.toolbox.selftest.canaries import Canary, CanaryReport
from stepflow.toolbox.selftest.outside import Outside
from stepflow.toolbox.selftest.trial import try_canaries

__all__ = ["Canary", "CanaryReport", "Outside", "try_canaries"]
