"""Text that an agent wrote, made safe to show. Somebody may have written to the agent."""

import unicodedata

_CONTROL = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def for_terminal(text: str) -> str:
    r"""Return `text` with every character that could steer a terminal written as an escape.

    Control characters, ANSI sequences, marks that turn the direction of writing, line separators
    and lone surrogates become escapes such as ``\x1b``; everything a person reads stays.

    Examples
    --------
    >>> print(for_terminal("red \x1b[31m alert\u202e"))
    red \x1b[31m alert\u202e
    """
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _CONTROL else char
        for char in text
    )
