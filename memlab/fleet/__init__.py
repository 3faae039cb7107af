"""Many stores: one table of all, and one reviewed change.

Names are expanded once, each store is worked on by itself, and what becomes of it is an
:class:`Outcome`: a store that is damaged, locked or gone is a row with its error, never the end of
the run. Who does the work is a runner; :class:`Serial` is the reference for all others.
"""

from typing import TYPE_CHECKING

from memlab.lazy import lazy_names

if TYPE_CHECKING:
    from memlab.fleet.clusters import Cluster, cluster_at
    from memlab.fleet.names import Member, Members, expand_names
    from memlab.fleet.outcomes import Outcome
    from memlab.fleet.processes import Processes
    from memlab.fleet.running import Runner, Serial
    from memlab.fleet.surveying import StoreLine, survey

__all__ = [
    "Cluster",
    "Member",
    "Members",
    "Outcome",
    "Processes",
    "Runner",
    "Serial",
    "StoreLine",
    "cluster_at",
    "expand_names",
    "survey",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "clusters": "Cluster cluster_at",
        "names": "Member Members expand_names",
        "outcomes": "Outcome",
        "processes": "Processes",
        "running": "Runner Serial",
        "surveying": "StoreLine survey",
    },
)
