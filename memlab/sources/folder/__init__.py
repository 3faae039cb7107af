"""Sources that are folders of files: reading, atomic changes, and history in git.

The kinds of folders are in the package ``systems``.
"""
