"""Where a server is: a URL taken apart, so that its password is in nothing that memlab writes."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from memlab.errors import MemlabError

_SECRETS: Final = ("password", "sslpassword")
"""Options of a URL that are a password too."""


@dataclass(frozen=True)
class Address:
    """The parts of a server's URL.

    Parameters
    ----------
    scheme : str
        What stands before ``://``.
    user : str or None
        Without percent signs.
    where : str
        Host and port as they were written; empty for a unix socket.
    path : str
        From the slash after the host on.
    options : mapping of str to str
        What follows the question mark, passwords aside.
    secrets : mapping of str to str
        Passwords by what they are called. Never shown.
    """

    scheme: str
    user: str | None
    where: str
    path: str
    options: Mapping[str, str]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def password(self) -> str | None:
        """The password that the URL gives, if it does."""
        return self.secrets.get("password")

    def without_password(self, *left_out: str) -> str:
        """Return the URL without a password, and without the options named."""
        user = "" if self.user is None else f"{quote(self.user, safe='')}@"
        left = {name: value for name, value in self.options.items() if name not in left_out}
        query = f"?{urlencode(left, quote_via=quote, safe='/:')}" if left else ""
        return f"{self.scheme}://{user}{self.where}{self.path}{query}"

    def hidden(self, text: str) -> str:
        """Return `text` with every password of this address blotted out."""
        for secret in self.secrets.values():
            if secret:
                text = text.replace(secret, "***").replace(quote(secret, safe=""), "***")
        return text


def address_of(url: str, *, options: Collection[str] | None = None) -> Address:
    """Return the parts of a URL.

    Parameters
    ----------
    url : str
        Such as ``redis://localhost:6379/0?name=betterdb_ac``.
    options : collection of str, optional
        The options that there are. By default any.

    Raises
    ------
    MemlabError
        When it is no URL, or has an option that there is not.

    Examples
    --------
    >>> address_of("redis://:secret@localhost/0").without_password()
    'redis://localhost/0'
    """
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise _no_url(url) from None  # the words of the other may hold a password
    if "://" not in url:
        raise _no_url(url)
    login, at, where = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    secrets = {"password": unquote(password)} if at and password else {}
    secrets |= {name: value for name, value in query if name in _SECRETS}
    given = {name: value for name, value in query if name not in _SECRETS}
    address = Address(parts.scheme, unquote(user) or None, where, parts.path, given, secrets)
    if unknown := [name for name in given if options is not None and name not in options]:
        raise MemlabError(
            f"{address.without_password()}: there is no option {unknown[0]!r}; there are "
            f"{', '.join(sorted(options or ()))}"
        )
    return address


def _no_url(url: str) -> MemlabError:
    shown = re.sub(r":.*@", "://", url, flags=re.DOTALL).partition("?")[0]
    return MemlabError(f"{shown} cannot be taken apart; write SCHEME://USER@HOST:PORT/NAME")
