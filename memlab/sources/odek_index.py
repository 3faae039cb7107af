"""odek's ``index.json``: a JSON list of episodes, each of which keeps the bytes that were written.

odek writes the list with an indent of two, in whatever order it has; a list that somebody has laid
out by hand keeps its layout.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from memlab.errors import StoreError

INDEX: Final = "index.json"

_SPACE: Final = " \t\r\n"
_INDENTED: Final = "\n  "
_EMPTY: Final = "[\n  "
_DECODER: Final = json.JSONDecoder(strict=False)


class Entry(NamedTuple):
    """An episode in the list.

    Attributes
    ----------
    session_id : str or None
        None for an entry that has none.
    text : str
        As written.
    before : str
        What stands between the entry before it and this one.
    fields : object
        What it says.
    """

    session_id: str | None
    text: str
    before: str
    fields: Any


@dataclass(frozen=True)
class EpisodeIndex:
    """The list, taken apart.

    Parameters
    ----------
    head : str
        What stands before the first entry.
    entries : tuple of Entry
        In order.
    tail : str
        What stands after the last.
    """

    head: str
    entries: tuple[Entry, ...]
    tail: str

    @classmethod
    def read(cls, raw: bytes) -> "EpisodeIndex":
        """Take a list apart; an empty file and ``null``, as Go writes no list, are empty ones.

        Raises
        ------
        StoreError
            When it is something else.
        """
        text = raw.decode("utf-8", "surrogateescape")
        if text.strip(_SPACE) in ("", "null"):
            return cls(_EMPTY, (), "\n]")
        try:
            return _parsed(text)
        except (ValueError, RecursionError) as error:
            raise StoreError(
                f"{INDEX} is not odek's list of episodes ({error}); odek cannot read it either: "
                "restore a backup of it"
            ) from error

    def without(self, gone: Collection[str]) -> "EpisodeIndex":
        """Return the list without some episodes."""
        kept = tuple(entry for entry in self.entries if entry.session_id not in gone)
        return EpisodeIndex(self.head, kept, self.tail)

    def to_bytes(self) -> bytes:
        """Return the list as it is written."""
        if not self.entries:
            return f"[]{self.tail.partition(']')[2]}".encode("utf-8", "surrogateescape")
        between = f",{self.head.partition('[')[2]}"  # before one that stood first
        parts = [self.head, self.entries[0].text]
        for entry in self.entries[1:]:
            parts += [entry.before or between, entry.text]
        return "".join([*parts, self.tail]).encode("utf-8", "surrogateescape")

    def said(self) -> dict[str, list[dict[str, Any]]]:
        """Return what the list says of each episode and where, as JSON values."""
        whole = _digest(self.to_bytes())
        said: dict[str, list[dict[str, Any]]] = {}
        for at, entry in enumerate(self.entries):
            if entry.session_id is not None:
                said.setdefault(entry.session_id, []).append(
                    {
                        "at": at,
                        "text": entry.text,
                        "before": entry.before,
                        "after": "".join(each.before for each in self.entries[at + 1 : at + 2]),
                        "head": self.head,
                        "tail": self.tail,
                        "above": self.entries[at - 1].session_id if at else None,
                        "whole": whole,
                    }
                )
        return said

    def with_said(self, said: Mapping[str, Sequence[Mapping[str, Any]]]) -> "EpisodeIndex":
        """Return a list that says again of episodes what it said.

        Byte for byte what it was where nothing else has changed; else an episode comes after the
        one that stood before it, at the end where that is gone. One that is listed is left alone.
        """
        listed = {entry.session_id for entry in self.entries}
        back = sorted(
            ((each, key) for key, places in said.items() if key not in listed for each in places),
            key=lambda pair: int(pair[0]["at"]),
        )
        if not back:
            return self
        first = back[0][0]
        exact = list(self.entries)
        for each, key in back:
            _insert(exact, int(each["at"]), key, each)
        whole = EpisodeIndex(str(first["head"]), tuple(exact), str(first["tail"]))
        if _digest(whole.to_bytes()) == first["whole"]:
            return whole
        entries = list(self.entries)
        for each, key in back:
            ids = [entry.session_id for entry in entries]
            above = each["above"] if each["above"] in ids else None
            at = ids.index(above) + 1 if above is not None else len(ids) * bool(each["at"])
            _insert(entries, at, key, each)
        head, tail = (self.head, self.tail) if self.entries else (whole.head, whole.tail)
        return EpisodeIndex(head, tuple(entries), tail)


def _insert(entries: list[Entry], at: int, key: str, said: Mapping[str, Any]) -> None:
    """Put an episode before another, which may have stood first meanwhile."""
    entries.insert(at, Entry(key, str(said["text"]), str(said["before"]), None))
    if at + 1 < len(entries) and not entries[at + 1].before:
        entries[at + 1] = entries[at + 1]._replace(before=str(said["after"]))


def _parsed(text: str) -> EpisodeIndex:
    at = _after_space(text, 0)
    if text[at : at + 1] != "[":
        raise ValueError("it does not begin with [")
    ends = at + 1
    entries: list[Entry] = []
    head = ""
    at = _after_space(text, ends)
    while text[at : at + 1] != "]":
        fields, end = _DECODER.raw_decode(text, at)
        if not entries:
            head = text[:at]
        entries.append(Entry(_id_of(fields), text[at:end], text[ends:at] * bool(entries), fields))
        ends, at = end, _after_space(text, end)
        if text[at : at + 1] == ",":
            at = _after_space(text, at + 1)
            if text[at : at + 1] == "]":
                raise ValueError("a comma before its end")
        elif text[at : at + 1] != "]":
            raise ValueError("it does not end")
    if text[at + 1 :].strip(_SPACE):
        raise ValueError("something stands after it")
    return EpisodeIndex(
        head or text[: text.index("[") + 1] + _INDENTED, tuple(entries), text[ends:]
    )


def _after_space(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at


def _id_of(fields: Any) -> str | None:
    found = fields.get("session_id") if isinstance(fields, dict) else None
    is_text = isinstance(found, str) and not any("\ud800" <= c <= "\udfff" for c in found)
    return found if is_text else None


def _digest(raw: bytes) -> str:
    return blake2b(raw, digest_size=6).hexdigest()
