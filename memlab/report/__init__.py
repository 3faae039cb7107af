"""Notebooks run on a store, the panel, the decision record, the bundled stores.

Imports nothing: each is loaded when it is asked for.
"""
