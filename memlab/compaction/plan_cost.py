"""Estimated cost of a plan in later references and reads."""

from dataclasses import dataclass

from memlab import columns as c
from memlab.arguments import expect
from memlab.compaction.plans import Plan
from memlab.evidence.reads import Log
from memlab.evidence.store_history import StoreHistory
from memlab.settings import NUMBERS
from memlab.sizing import Verdict
from memlab.sizing.goal import SizingGoal, prepared_for
from memlab.sources.opening import SourceLike
from memlab.text import DisplayMixin, TextPage, counted


@dataclass(frozen=True, repr=False)
class Cost(DisplayMixin):
    """Estimated cost of a plan in later references and reads.

    Attributes
    ----------
    lost : float or None
        The estimated share of later references to memories that would be deleted, if the cap or
        budget of the plan were kept until the horizon in the settings. None for other policies.
    lost_limits : tuple of float or None
        The lower and the upper limit of `lost`.
    safe, likely : int or None
        The cap or budget that serves `target` safely, and the one that serves it with even odds.
    target : float
        The share of references to serve.
    references, to_deleted : int
        The number of references so far, and of those to memories that the plan deletes.
    missed : int or None
        The number of references so far that would have found their memory gone, had the cap or
        budget been kept from the start. None for other policies.
    reads : int
        How many of the references are reads in a log.

    Examples
    --------
    >>> estimate = {"lost": 0.04, "lost_limits": (0.02, 0.07), "safe": 120, "likely": 90}
    >>> cost = Cost(**estimate, target=0.95, references=80, to_deleted=0)
    >>> print(cost)
    what that costs
      of later needs  about 4.0% would not find their memory, limits 2.0% to 7.0%
      in the past     0 of 80 references named a memory that it deletes
      to serve 95%    120 is safe, 90 is likely
    """

    lost: float | None
    lost_limits: tuple[float, float] | None
    safe: int | None
    likely: int | None
    target: float
    references: int
    to_deleted: int
    missed: int | None = None
    reads: int = 0

    def sheet(self) -> TextPage:
        """Return the printed page."""
        return TextPage("what that costs", self.facts())

    def facts(self) -> list[tuple[str, str]]:
        """Return the cost as facts: later needs, the past, and the numbers for the target."""
        facts = []
        if self.lost is not None and self.lost_limits is not None:
            low, high = self.lost_limits
            lost = f"about {self.lost:.1%} would not find their memory"
            facts.append(("of later needs", f"{lost}, limits {low:.1%} to {high:.1%}"))
        facts.append(("in the past", self._past_in_words()))
        if self.safe is not None:
            numbers = f"{self.safe:,} is safe, {self.likely:,} is likely"
            facts.append((f"to serve {self.target:.0%}", numbers))
        return facts

    def _past_in_words(self) -> str:
        """Return how many past references and reads would have found their memory gone."""
        if not self.references:
            return "no reference or read is known"
        noun = "references and reads"
        if not self.reads:
            noun = "references"
        elif self.reads == self.references:
            noun = "reads"
        known = counted(self.references, noun)
        if self.missed is None:
            return f"{self.to_deleted:,} of {known} named a memory that it deletes"
        share = self.missed / self.references
        words = f"{self.missed:,} of {known} ({share:.1%}), if applied from the start"
        if self.lost_limits is None or self.lost_limits[0] <= share <= self.lost_limits[1]:
            return words
        return (
            f"{words}; the estimate for later needs differs, because they reach back further in a "
            "larger store and other projects count, too"
        )


def cost_of(plan: Plan, *, store: SourceLike | None = None, log: Log = None) -> Cost:
    """Estimate the cost of a plan in later references and reads, from the history of its store.

    Parameters
    ----------
    plan : Plan
        The result of :func:`memlab.plan`.
    store : str, Path, SqliteMemoryStore or Source, optional
        The store, if it has moved since the plan was made.
    log : DataFrame, str or Path, optional
        An access log. The logs in ``memlab.toml`` by default.

    Returns
    -------
    Cost
        The estimate, with its limits.

    Examples
    --------
    >>> import memlab
    >>> plan = memlab.plan(memlab.store_path("two_years"), memlab.KeepRecent(50))
    >>> cost = cost_of(plan)
    >>> 0 <= cost.to_deleted <= cost.references
    True
    """
    call = "memlab.compaction.cost_of"
    expect(plan, Plan, call=call, name="plan")
    evidence = StoreHistory.of(
        plan.store if store is None else store, log, call=call
    ).with_references()
    past = evidence.past
    references = evidence.references
    deleted_ids = {memory.memory_id for memory in plan.memories}
    to_deleted = int(references[c.TARGET_ID].isin(deleted_ids).sum())
    goal = SizingGoal.of(evidence.settings)
    lost = None
    limits = None
    missed = None
    safe = None
    likely = None
    name = str(plan.policy.get("policy"))
    if name in NUMBERS:
        sizing = prepared_for(past, references, goal, tokens=name == "tokens", now=evidence.now)
        (row,) = sizing.at([plan.policy[NUMBERS[name]]]).to_dict("records")
        lost = round(1 - row["served"], 6)
        limits = (round(1 - row["high"], 6), round(1 - row["low"], 6))
        if len(references):
            missed = round(len(references) * (1 - row["served_observed"]))
        choice = sizing.choose(goal.target)
        if choice.verdict is not Verdict.NOTHING_PRUNABLE:
            safe = sizing.number_for(choice.keep_recent)
            likely = sizing.number_for(choice.likely)
    return Cost(
        lost=lost,
        lost_limits=limits,
        safe=safe,
        likely=likely,
        target=goal.target,
        references=len(references),
        to_deleted=to_deleted,
        missed=missed,
        reads=int((references[c.KIND] == "log").sum()),
    )
