"""The table ``memory_items`` of an agent's runtime."""
