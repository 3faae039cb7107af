"""claude-mem's database."""
