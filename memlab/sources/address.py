"""Where a server is: a URL taken apart, so that its password is in nothing that memlab writes."""

import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from memlab.errors import MemlabError, StoreError
from memlab.sources.base import Source, archive_elsewhere
from memlab.text import without_passwords

_SECRETS: Final = ("password", "sslpassword")
"""Options of a URL that are a password too."""
_NO_PORT: Final = re.compile(r":(?!\d*$)[^\]]*$")
"""Such as half a password, which should have been written with percent signs."""


@dataclass(frozen=True)
class Address:
    """The parts of a server's URL."""

    scheme: str
    user: str | None
    where: str
    path: str
    options: Mapping[str, str]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

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


Words = Mapping[str, str | tuple[type[MemlabError], str]]
"""What an error of a client's means, by its name or the nearest of what it is a kind of."""


@contextmanager
def errors_in_words(
    name: str, address: Address, errors: tuple[type[BaseException], ...], words: Words
) -> Iterator[None]:
    """Turn errors of a server's client into sentences that hold no password."""
    try:
        yield
    except errors as error:
        told = next(words[kind.__name__] for kind in type(error).mro() if kind.__name__ in words)
        raised, told = (StoreError, told) if isinstance(told, str) else told
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise raised(f"{name} {told.format(said=address.hidden(said))}") from error


class ServerSource(Source):
    """A store on a server, named by a URL whose password nothing shows."""

    def __init__(self, where: str, options: Collection[str] | None = None) -> None:
        self.address = address_of(where, options=options)
        self.scheme = self.address.scheme

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def name(self) -> str:
        """The URL without its password."""
        return self.address.without_password()

    @property
    def archive(self) -> Path:
        """The archive on this machine: one for a store, however its URL is written."""
        given = self.address.options.get("archive")
        return Path(given) if given else archive_elsewhere(self.known_as())

    @abstractmethod
    def known_as(self) -> str:
        """Return the store's name with what its URL leaves open, and nothing twofold."""


def address_of(url: str, *, options: Collection[str] | None = None) -> Address:
    """Return the parts of a URL.

    >>> address_of("redis://:secret@localhost/0").without_password()
    'redis://localhost/0'
    """
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise _no_url(url) from None  # the words of the other may hold a password
    login, _, where = parts.netloc.rpartition("@")
    if "://" not in url or any(map(_NO_PORT.search, where.split(","))):
        raise _no_url(url)
    user, _, password = login.partition(":")
    secrets = {"password": unquote(password)} if password else {}
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
    return MemlabError(
        f"{without_passwords(url)} cannot be taken apart; write SCHEME://USER@HOST:PORT/NAME"
    )
