"""Many stores: one table of all, and one reviewed change.

Names are expanded once, each store is worked on by itself, and what becomes of it is an
:class:`Outcome`: a store that is damaged, locked or gone is a row with its error, never the end of
the run. Who does the work is a runner; :class:`Serial` is the reference for all others.
"""

from typing import TYPE_CHECKING

from memlab.lazy import lazy_names

if TYPE_CHECKING:
    from memlab.fleet.change import (
        Applied,
        FleetPlan,
        MaintainedStore,
        PlannedStore,
        Refused,
        apply,
        maintain,
        plan,
        plan_maintenance,
    )
    from memlab.fleet.cohort import Cohort, SizedStore, cohort_of, size
    from memlab.fleet.names import Member, Members, expand_names
    from memlab.fleet.overview import StoreLine, survey
    from memlab.fleet.page import FleetFindings, examine_fleet, write_fleet_report
    from memlab.fleet.task import Outcome, Runner, Serial
    from memlab.fleet.workers import Cluster, Processes, cluster_at

__all__ = [
    "Applied",
    "Cluster",
    "Cohort",
    "FleetFindings",
    "FleetPlan",
    "MaintainedStore",
    "Member",
    "Members",
    "Outcome",
    "PlannedStore",
    "Processes",
    "Refused",
    "Runner",
    "Serial",
    "SizedStore",
    "StoreLine",
    "apply",
    "cluster_at",
    "cohort_of",
    "examine_fleet",
    "expand_names",
    "maintain",
    "plan",
    "plan_maintenance",
    "size",
    "survey",
    "write_fleet_report",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "change": (
            "Applied FleetPlan MaintainedStore PlannedStore Refused "
            "apply maintain plan plan_maintenance"
        ),
        "cohort": "Cohort SizedStore cohort_of size",
        "names": "Member Members expand_names",
        "overview": "StoreLine survey",
        "page": "FleetFindings examine_fleet write_fleet_report",
        "task": "Outcome Runner Serial",
        "workers": "Cluster Processes cluster_at",
    },
)
