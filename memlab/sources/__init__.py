"""Base classes, opening, recognition and reading of logs, which all kinds of store share.

The adapters of the systems are in the package ``systems``.
"""
