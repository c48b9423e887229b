"""An agent as its files define it: steps, settings, tools, the ladder of its models, and the problems found in it."""
