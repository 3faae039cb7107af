"""Extensions of the site: links between notebooks and to names, one row for each parameter."""

import re
from typing import Any

import griffe


def on_page_content(html: str, **_: Any) -> str:
    """Turn roles into links to names of the page, and link to the pages of notebooks.

    mkdocs calls this hook with the HTML of each page.
    """

    def link_of(role: re.Match[str]) -> str:
        name = role[1]
        code = f"<code>{name}</code>"
        if f'id="{name}"' not in html:
            return code
        return f'<a href="#{name}">{code}</a>'

    html = re.sub(r":\w+:<code>~?([\w.]+)</code>", link_of, html)
    return re.sub(r'(href="[^":]*)\.ipynb(["#])', r"\1.html\2", html)


class SplitSharedEntries(griffe.Extension):
    """Give names that share an entry of a docstring a row each, with its own type and default."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Repeat a shared entry for each of its names; mkdocstrings calls this hook."""

        def split(entry: re.Match[str]) -> str:
            names = entry[1].split(", ")
            description = entry[2]
            return "\n".join(name + description for name in names)

        if obj.docstring:
            shared_entry = r"(?m)^(\w+(?:, \w+)+)((?: :.*)?(?:\n    .*)+)"
            obj.docstring.value = re.sub(shared_entry, split, obj.docstring.value)
