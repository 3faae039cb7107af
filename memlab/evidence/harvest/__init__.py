"""Reads that agents write down by themselves: one module a kind of source, one table of them."""
