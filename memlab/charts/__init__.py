"""Charts of computed frames: each takes ``ax=None``, draws, and returns the Axes.

A chart computes nothing, prints nothing and shows nothing. Without `ax` it draws on a figure of its
own, made without pyplot; ``ax.figure`` is the picture.
"""

from memlab.errors import MissingExtraError

try:
    import matplotlib  # noqa: F401 - asked for here, so that a missing one is explained once
except ImportError as error:
    raise MissingExtraError(
        "Charts need matplotlib, which is not installed. Install it: pip install 'memlab[report]'"
    ) from error
