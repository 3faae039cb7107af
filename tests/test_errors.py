"""Every error keeps its message and what it knows, wherever it travels."""

import copy
import pickle

import pytest

from memlab import errors
from memlab.errors import BadRowError, MemlabError, MissingExtraError, StalePlanError

EXAMPLES = [
    *(
        kind("what happened, where, and what to do")
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, MemlabError)
    ),
    BadRowError("row 7", position=7, memory_id="m7", column="kind"),
    StalePlanError("stale", memory_ids=("a", "b")),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling(error: MemlabError) -> None:
    twins = [pickle.loads(pickle.dumps(error, n)) for n in range(pickle.HIGHEST_PROTOCOL + 1)]
    for twin in (*twins, copy.deepcopy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


def test_a_missing_extra_is_an_import_error() -> None:
    assert issubclass(MissingExtraError, ImportError)
