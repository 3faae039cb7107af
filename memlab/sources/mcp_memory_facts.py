"""What there is to say of mcp-memory-service's database that no frame holds."""

from dataclasses import dataclass

from memlab.text import Sheet, Shown


@dataclass(frozen=True, repr=False)
class ServiceFacts(Shown):
    """What lies beside the memories.

    Parameters
    ----------
    schema : int or None
        The version that the service's migrations left the file at.
    known_schema : int
        The newest that memlab was tried on.
    deleted : int
        Memories that the service or memlab deleted, and the service has not purged yet.
    vectors, edges : int
        Of the search and of the graph.
    synced : int
        Events that other machines are told of.
    """

    schema: int | None
    known_schema: int
    deleted: int
    vectors: int
    edges: int
    synced: int

    def sheet(self) -> Sheet:
        """Return the facts as a page."""
        facts = [
            ("loaded", "nothing at start by itself: a search brings memories"),
            ("beside", f"{self.vectors:,} vectors, {self.edges:,} edges"),
            ("deleted", f"{self.deleted:,}, which the service has not purged yet"),
        ]
        if self.synced:
            facts.append(("synced", f"{self.synced:,} events: memlab deletes nothing here"))
        if self.schema is not None and self.schema > self.known_schema:
            newer = f"{self.schema}, newer than {self.known_schema}, the newest that memlab knows"
            facts.append(("schema", f"{newer}; what it knows is read, nothing is deleted"))
        return Sheet("mcp-memory-service", facts)
