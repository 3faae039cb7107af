"""Plan, apply, archive, restore.

Imports nothing: a script that only reads a plan pays for no frame.
"""
