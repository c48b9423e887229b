"""What comes next: definition and ports in, `FlowResult` out (house.md "Rooms")."""

from stepflow.flow.loop import run_flow

__all__ = ["run_flow"]
