"""The action's door: environ and event in, exit code out (house.md "Rooms")."""

from stepflow.action.main import act, main

__all__ = ["act", "main"]
