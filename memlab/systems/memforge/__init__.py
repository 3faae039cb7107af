"""MemForge's tables in PostgreSQL."""
