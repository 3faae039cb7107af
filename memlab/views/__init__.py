"""A report as one page, notebooks on a store, the panel, the decision record, bundled stores."""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
