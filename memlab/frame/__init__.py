"""Loading of a store: rows of any source as labelled memories, in a frame or in arrays.

How a system stores its rows is in ``systems``. Deleted memories, references and reads are added in
``evidence``.
"""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
