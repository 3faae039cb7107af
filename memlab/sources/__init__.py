"""What sources of memories share: base classes, opening, recognition and reading of logs.

The adapters of the systems are in the package ``systems``.
"""
