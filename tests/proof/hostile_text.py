"""What somebody who writes to an agent might have it remember."""

from datetime import timedelta
from pathlib import Path
from typing import Final

from memlab import MemoryItem, MemoryKind, MemoryProvenance, SqliteMemoryStore
from proof.stores import START

_ATTACK: Final = "document.title='owned';window.owned=1;fetch('http://127.0.0.1:9/owned')"

TEXTS: Final = {
    "script": f"<script>{_ATTACK}</script>",
    "image": f'<img src="http://127.0.0.1:9/x.png" onerror="{_ATTACK}">',
    "svg": f'<svg onload="{_ATTACK}"><animate onbegin="{_ATTACK}" attributeName="x"/></svg>',
    "attribute": f"\"' autofocus onfocus='{_ATTACK}' x='",
    "escape": f"--></style></title></textarea></pre></td></table><script>{_ATTACK}</script>",
    "half": f"</scr<script>ipt><iframe srcdoc='<script>{_ATTACK}</script>'>",
    "entities": f"&lt;script&gt;{_ATTACK}&lt;/script&gt; &#60;img src=x onerror={_ATTACK}&#62;",
    "link": f"[a](javascript:{_ATTACK}) ![i](http://127.0.0.1:9/i.png) <http://127.0.0.1:9/>",
    "formula": "$\\href{http://127.0.0.1:9/}{x}$ \\(\\unicode{x41}\\) $$\\class{a}{b}$$",
    "template": "{{ 7 * 7 }} {% include '/etc/passwd' %} ${7*7} %(name)s {0}",
    "ansi": "\x1b[2J\x1b[31mred\x1b]0;owned\x07\x1b]8;;http://127.0.0.1:9/\x07link\x1b\\",
    "c1": "\x9b2J\x9d0;owned\x9c",
    "backspace": "approved\b\b\b\b\b\b\b\brejected\rmemlab: all is well",
    "lines": "one\r\ntwo\x0b\x0c\x85\u2028\u2029three",
    "direction": "\u202etxt.exe\u202c \u2066a\u2069 \u200f\u061c",
    "invisible": "\u200b\u2060\ufeff\u00ad\U000e0041",
    "nul": "before\0after",
    "combining": "Z" + "\u0301" * 300,
    "sheet": '=HYPERLINK("http://127.0.0.1:9/","x")',
    "quotes": "'; DROP TABLE memory_items; -- \" ` \\ $(touch owned) | & ;",
}
LONG: Final = 2_000_000
"""Characters of one long text."""


def make_hostile_store(path: Path, *, long: int = LONG) -> Path:
    """Write a store whose titles, bodies, tags, ids, authors and references are hostile."""
    texts = TEXTS | {"long": "A" * long} if long else TEXTS
    with SqliteMemoryStore(path) as store:
        for number, (name, text) in enumerate(texts.items()):
            for place in ("title", "body", "tag", "id", "reference"):
                store.put(_item(f"{name}-{place}", text, place, number))
        for text in texts.values():
            store.supersede(f"{text} id", by_memory_id="script-title")
            store.put(_item(f"again {len(text)} {text[:9]}", text, "id", len(texts)))
        store.connection.execute(
            "UPDATE memory_items SET superseded_by = 'gone ' || memory_id "
            "WHERE superseded_by IS NOT NULL"
        )
    return path


def _item(name: str, text: str, place: str, number: int) -> MemoryItem:
    reference = text if place == "reference" else f"issue:#{number}"
    return MemoryItem(
        f"{text} id" if place == "id" and not name.startswith("again") else name,
        MemoryKind.EPISODIC,
        text if place in ("title", "id") else name,
        text if place == "body" else f"body of {name}",
        MemoryProvenance(
            None,
            text if place == "reference" else "agent",
            source_task_ref=reference,
            created_at=START + timedelta(hours=number),
            evidence_refs=(reference,),
        ),
        tags=(text,) if place == "tag" else (),
    )
