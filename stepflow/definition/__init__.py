"""Is this agent sound: folder in, `AgentDefinition` or all problems out."""
