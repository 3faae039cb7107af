"""Helpers that several test modules share: stores, sources, servers and programs."""
