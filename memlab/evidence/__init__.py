"""What says that a memory was needed: references, access logs, the whole past.

Imports nothing: a runtime that writes a log pays for no frame.
"""
