"""Estimate the cost of a plan in later references and reads."""

from dataclasses import dataclass, replace

from memlab import columns as c
from memlab.arguments import expect
from memlab.compaction.plans import Plan
from memlab.evidence.past import refers_to_unlisted
from memlab.evidence.reads import Log
from memlab.evidence.store_history import StoreHistory
from memlab.settings import NUMBERS
from memlab.sizing import Verdict
from memlab.sizing.goal import SizingGoal, prepared_for
from memlab.sources.opening import SourceLike
from memlab.text import DisplayMixin, TextPage, counted, percent, percent_as_given


@dataclass(frozen=True, repr=False)
class Cost(DisplayMixin):
    """Estimated cost of a plan in later references and reads.

    Attributes
    ----------
    lost : float or None
        The estimated share of later references to memories that would be deleted, if the cap or
        budget of the plan were kept until the horizon in the settings. None for other policies.
    lost_limits : tuple of float or None
        The lower and the upper limit of `lost`. None for other policies.
    safe, likely : int or None
        The cap or budget that serves `target` with the confidence in the settings, and the one that
        serves it with even odds. None for other policies.
    target : float
        The share of references to serve.
    references : int
        The number of references so far that :func:`memlab.size` counts.
    to_deleted : int
        The number of those references whose memory the plan deletes.
    missed : int or None
        The number of references so far whose memory would have been deleted before, had the cap or
        budget been applied from the start. None for other policies.
    reads : int
        The number of the references that are reads in a log.
    horizon_too_short : bool
        Whether the verdict on the target is ``horizon-too-short``: references often reach back to
        the oldest memories, so that the past shows too few of them.

    Examples
    --------
    >>> estimate = {"lost": 0.04, "lost_limits": (0.02, 0.07), "safe": 120, "likely": 90}
    >>> cost = Cost(**estimate, target=0.95, references=80, to_deleted=0)
    >>> print(cost)
    what that costs
      of later needs  about 4.0% would not find their memory, limits 2.0% to 7.0%
      in the past     0 of 80 later needs were of a memory that it deletes
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
    horizon_too_short: bool = False

    def sheet(self) -> TextPage:
        """Return the printed page."""
        return TextPage("what that costs", self.facts())

    def facts(self) -> list[tuple[str, str]]:
        """Return the cost as facts: later needs, the past, and the numbers for the target."""
        facts = []
        if self.lost is not None and self.lost_limits is not None:
            low, high = self.lost_limits
            lost = f"about {percent(self.lost)} would not find their memory"
            facts.append(("of later needs", f"{lost}, limits {percent(low)} to {percent(high)}"))
        facts.append(("in the past", self._past_in_words()))
        if self.safe is not None:
            numbers = f"{self.safe:,} is safe, {self.likely:,} is likely"
            facts.append((f"to serve {percent_as_given(self.target)}", numbers))
        return facts

    def _past_in_words(self) -> str:
        """Return as a clause the number of past references to memories that the plan deletes.

        For a cap or a budget, return the number of those that it would have missed.
        """
        if not self.references:
            return "no later need is known, neither a reference nor a read"
        later_needs = counted(self.references, "later needs")
        if self.missed is None:
            return f"{self.to_deleted:,} of {later_needs} were of a memory that it deletes"
        missed_share = self.missed / self.references
        words = (
            f"{self.missed:,} of {later_needs} ({percent(missed_share)}), if applied from the start"
        )
        if self.horizon_too_short:
            return (
                f"{words}; more will be missed in a larger store, because later needs here often "
                "reach back to the oldest memories"
            )
        if self.lost_limits is None:
            return words
        low, high = self.lost_limits
        if low <= missed_share <= high:
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
    location = plan.store if store is None else store
    history = StoreHistory.of(location, log, call=call).with_references()
    references = history.references[~refers_to_unlisted(history.past, history.references)]
    deleted_ids = {memory.memory_id for memory in plan.memories}
    goal = SizingGoal.of(history.settings)
    cost = Cost(
        lost=None,
        lost_limits=None,
        safe=None,
        likely=None,
        target=goal.target,
        references=len(references),
        to_deleted=int(references[c.TARGET_ID].isin(deleted_ids).sum()),
        reads=int((references[c.KIND] == "log").sum()),
    )
    has_cap_or_budget = plan.policy.get("policy") in NUMBERS
    if has_cap_or_budget:
        return _with_estimate(cost, plan, history, goal)
    return cost


def _with_estimate(cost: Cost, plan: Plan, history: StoreHistory, goal: SizingGoal) -> Cost:
    """Add the estimates from the sizing of the cap or budget of a plan to its cost."""
    policy = str(plan.policy["policy"])
    sizing = prepared_for(
        history.past, history.references, goal, tokens=policy == "tokens", now=history.now
    )
    number = plan.policy[NUMBERS[policy]]
    (row,) = sizing.at([number]).to_dict("records")
    missed = None
    if cost.references:
        missed = round(cost.references * (1 - row["served_observed"]))
    safe = None
    likely = None
    choice = sizing.choose(goal.target)
    if choice.verdict is not Verdict.NOTHING_PRUNABLE:
        safe = sizing.number_for(choice.keep_recent)
        likely = sizing.number_for(choice.likely)
    return replace(
        cost,
        lost=round(1 - row["served"], 6),
        lost_limits=(round(1 - row["high"], 6), round(1 - row["low"], 6)),
        safe=safe,
        likely=likely,
        missed=missed,
        horizon_too_short=choice.verdict is Verdict.HORIZON_TOO_SHORT,
    )
