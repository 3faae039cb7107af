"""Stores of any kind: base classes, the table of systems, recognition, and opening by name.

What one system does differently is in ``systems``. What a memory means (its labels, its references)
is decided above, in ``frame`` and ``evidence``.
"""
