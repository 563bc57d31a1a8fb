"""Searches of a server for clients of the Model Context Protocol (MCP)."""
