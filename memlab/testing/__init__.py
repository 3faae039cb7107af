"""The conformance suite for adapters of other packages, and base classes for the labs it uses.

This needs the extra ``testing``. An adapter of an installed package deletes only if its package
ships the record that ``python -m memlab.testing TESTS`` writes: see :func:`run_suite`. A source
that is passed to memlab as an object needs no record.
"""

import sys
from typing import Any, Final

from memlab.lazy import import_extra, lazy_names

_SUITE: Final = "memlab.testing.conformance"

_get, __dir__, __all__ = lazy_names(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Import a public name on first use. Failed assertions of the suite show their values."""
    if name in __all__:
        pytest = import_extra("pytest", extra="testing")
        if _SUITE not in sys.modules:
            pytest.register_assert_rewrite(_SUITE)
    return _get(name)
