"""MCP servers: what the steps of an agent may call beside the tools of the sandbox."""
