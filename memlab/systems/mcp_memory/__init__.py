"""mcp-memory-service's database."""
