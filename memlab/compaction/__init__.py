"""Plan, apply, archive, restore, and the room on the disk.

Loads nothing until a name is used: a script that only reads a plan pays for no frame.
"""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
