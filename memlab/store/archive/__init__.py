"""A store's archive."""
