"""The table ``memory_items`` of an agent's runtime, as a source.

Recognising such a file, and reading it quickly into columns, belongs here. The store that a runtime
imports, and the format of its records, are in ``store``.
"""
