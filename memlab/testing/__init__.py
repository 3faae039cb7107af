"""Tests for adapters that other packages write: the conformance suite, and the labs that it uses.

It needs the extra ``testing``. ``python -m memlab.testing TESTS`` runs the suite and writes the
record without which memlab deletes nothing with the adapter of another package. Tests of a single
system are not here: they stand in ``tests``, and use the suite too.
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
