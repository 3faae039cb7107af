"""What the site does with pages: links between notebooks and between names, a row a parameter."""

import re
from typing import Any

import griffe


def on_page_content(html: str, **_: Any) -> str:
    """Lead to the page of a notebook, and to a name's own place; called by mkdocs."""

    def linked(role: re.Match[str]) -> str:
        name = role[1]
        shown = f"<code>{name}</code>"
        return f'<a href="#{name}">{shown}</a>' if f'id="{name}"' in html else shown

    html = re.sub(r":\w+:<code>~?([\w.]+)</code>", linked, html)
    return re.sub(r'(href="[^":]*)\.ipynb(["#])', r"\1.html\2", html)


class RowEach(griffe.Extension):
    """Give names that share an entry of a docstring a row each, with its own type and default."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Say the entry once for each name; called by mkdocstrings."""
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"(?m)^(\w+(?:, \w+)+)((?: :.*)?(?:\n    .*)+)",
                lambda entry: "\n".join(name + entry[2] for name in entry[1].split(", ")),
                obj.docstring.value,
            )
