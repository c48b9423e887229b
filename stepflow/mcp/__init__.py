"""MCP servers: what an agent's steps may call in addition to the sandbox's tools."""
