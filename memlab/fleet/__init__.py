"""Many stores: one table of all, and one reviewed change.

Names are expanded once, each store is worked on by itself, and what becomes of it is an
:class:`Outcome`: a store that is damaged, locked or gone is a row with its error, never the end of
the run. Who does the work is a runner; :class:`Serial` is the reference for all others.
"""

from typing import TYPE_CHECKING

from memlab.lazy import lazy_names

if TYPE_CHECKING:
    from memlab.fleet.capping import SizedStore, size
    from memlab.fleet.carrying_out import Applied, apply
    from memlab.fleet.clusters import Cluster, cluster_at
    from memlab.fleet.cohort import Cohort, cohort_of
    from memlab.fleet.deciding import plan
    from memlab.fleet.fleet_plan import FleetPlan, PlannedStore, Refused
    from memlab.fleet.names import Member, Members, expand_names
    from memlab.fleet.outcomes import Outcome
    from memlab.fleet.page import FleetFindings, examine_fleet, write_fleet_report
    from memlab.fleet.processes import Processes
    from memlab.fleet.running import Runner, Serial
    from memlab.fleet.surveying import StoreLine, survey
    from memlab.fleet.upkeep import MaintainedStore, maintain, plan_maintenance

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
        "capping": "SizedStore size",
        "carrying_out": "Applied apply",
        "clusters": "Cluster cluster_at",
        "cohort": "Cohort cohort_of",
        "deciding": "plan",
        "fleet_plan": "FleetPlan PlannedStore Refused",
        "names": "Member Members expand_names",
        "outcomes": "Outcome",
        "page": "FleetFindings examine_fleet write_fleet_report",
        "processes": "Processes",
        "running": "Runner Serial",
        "surveying": "StoreLine survey",
        "upkeep": "MaintainedStore maintain plan_maintenance",
    },
)
