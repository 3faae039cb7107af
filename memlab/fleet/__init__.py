"""Many stores: one table of all, and one reviewed change.

Names are expanded once, each store is worked on by itself, and what becomes of it is an
:class:`Outcome`: a store that is damaged, locked or gone is a row with its error, never the end of
the run. Who does the work is a runner; :class:`Serial` is the reference for all others.
"""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
