"""The entry point of the action: takes the environment and the event, returns an exit code."""
