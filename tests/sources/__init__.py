"""Tests of the sources: every kind of store memlab reads."""
