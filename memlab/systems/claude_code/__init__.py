"""Claude Code's folder of memories."""
