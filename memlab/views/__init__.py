"""A report as one page, notebooks on a store, the panel, the decision record, the bundled stores.

Loads nothing until a name is used: each needs extras of its own.
"""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
