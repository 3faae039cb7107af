"""Parse the URL of a server, and keep its password out of everything that memlab writes."""

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
"""Options of a URL that are passwords."""
_NO_PORT: Final = re.compile(r":(?!\d*$)[^\]]*$")
"""Text in place of a port, such as the rest of a password with unescaped characters."""


@dataclass(frozen=True)
class Address:
    """The parts of a server's URL. `hosts` has the ports, and may have several hosts."""

    scheme: str
    user: str | None
    hosts: str
    path: str
    options: Mapping[str, str]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    def without_password(self, *left_out: str) -> str:
        """Return the URL without passwords and without the options `left_out`."""
        user = "" if self.user is None else f"{quote(self.user, safe='')}@"
        options = {name: value for name, value in self.options.items() if name not in left_out}
        query = f"?{urlencode(options, quote_via=quote, safe='/:')}" if options else ""
        return f"{self.scheme}://{user}{self.hosts}{self.path}{query}"

    def hidden(self, text: str) -> str:
        """Return `text` with the passwords of this address masked."""
        for secret in self.secrets.values():
            if secret:
                text = text.replace(secret, "***").replace(quote(secret, safe=""), "***")
        return text


Messages = Mapping[str, str | tuple[type[MemlabError], str]]
"""Messages by the name of a client's exception or of a base class of it.

A message may come with the exception to raise instead of StoreError.
"""


@contextmanager
def errors_in_words(
    name: str, address: Address, errors: tuple[type[BaseException], ...], messages: Messages
) -> Iterator[None]:
    """Raise errors of a server's client with a message that has no password."""
    try:
        yield
    except errors as error:
        known = [kind.__name__ for kind in type(error).mro() if kind.__name__ in messages]
        entry = messages[known[0]]
        exception: type[MemlabError] = StoreError
        if isinstance(entry, str):
            message = entry
        else:
            exception, message = entry
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        text = message.format(answer=address.hidden(first_line))
        raise exception(f"{name} {text}") from error


class ServerSource(Source):
    """A store on a server. Its name is its URL without a password."""

    def __init__(self, url: str, options: Collection[str] | None = None) -> None:
        self.address = address_of(url, options=options)
        self.scheme = self.address.scheme

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def name(self) -> str:
        """The URL without its password."""
        return self.address.without_password()

    @property
    def archive_path(self) -> Path:
        """Path of the archive on this machine. All spellings of a URL have the same one."""
        path = self.address.options.get("archive")
        return Path(path) if path else archive_elsewhere(self.known_as())

    @abstractmethod
    def known_as(self) -> str:
        """Return the canonical name of the store, with all defaults filled in."""


def address_of(url: str, *, options: Collection[str] | None = None) -> Address:
    """Return the parts of a URL.

    >>> address_of("redis://:secret@localhost/0").without_password()
    'redis://localhost/0'
    """
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise _no_url(url) from None  # the message of the cause may have a password
    login, _, hosts = parts.netloc.rpartition("@")
    if "://" not in url or any(map(_NO_PORT.search, hosts.split(","))):
        raise _no_url(url)
    user, _, password = login.partition(":")
    secrets = {"password": unquote(password)} if password else {}
    secrets |= {name: value for name, value in query if name in _SECRETS}
    plain_options = {name: value for name, value in query if name not in _SECRETS}
    address = Address(
        scheme=parts.scheme,
        user=unquote(user) or None,
        hosts=hosts,
        path=parts.path,
        options=plain_options,
        secrets=secrets,
    )
    unknown = []
    if options is not None:
        unknown = [name for name in plain_options if name not in options]
    if unknown:
        raise MemlabError(
            f"{address.without_password()}: there is no option {unknown[0]!r}; there are "
            f"{', '.join(sorted(options or ()))}"
        )
    return address


def _no_url(url: str) -> MemlabError:
    """Return the error for a URL that cannot be parsed."""
    return MemlabError(
        f"{without_passwords(url)} cannot be taken apart; write SCHEME://USER@HOST:PORT/NAME"
    )
