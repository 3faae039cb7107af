"""BetterDB agent-memory's hashes in Valkey or Redis."""
