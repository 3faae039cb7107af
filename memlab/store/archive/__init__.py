"""Archive of a store: copies of the memories that were deleted from it. Standard library only.

The format of an archive, and how it is opened, checked, read, written and converted, belongs here.
When memories are deleted and restored is decided in ``compaction``, and which store an archive
belongs to is found in ``sources``.
"""
