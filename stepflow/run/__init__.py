"""One run, put together and driven (house.md "Rooms")."""

from stepflow.run.inputs import Inputs, read_inputs

__all__ = ["Inputs", "read_inputs"]
