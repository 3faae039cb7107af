"""Let links between notebooks lead to pages on the site, as they lead to files beside them."""

import re
from typing import Any


def on_page_content(html: str, **_: Any) -> str:
    """Name the page of a notebook where its file is named; called by mkdocs."""
    return re.sub(r'(href="[^":]*)\.ipynb(["#])', r"\1.html\2", html)
