"""Pages on a store: ``show``, ``size``, the report, the panel and the browser, and bundled stores.

A page computes nothing that another package could: it asks ``growth``, ``sizing`` and ``replay``,
and draws with ``charts``. Pages on a fleet are in ``fleet``.
"""

from memlab.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
