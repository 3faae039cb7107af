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

_SECRET_OPTIONS: Final = ("password", "sslpassword")
"""Options of a URL that are passwords."""
_INVALID_PORT: Final = re.compile(r":(?!\d*$)[^\]]*$")
"""Text in place of a port, such as the rest of a password with unescaped characters."""


@dataclass(frozen=True)
class Address:
    """The parts of a server's URL.

    Attributes
    ----------
    scheme, path : str
        Its scheme and its path.
    user : str or None
        The name of the user; None for none.
    hosts : str
        One or more hosts, with their ports.
    options : mapping of str to str
        The options in the query, without passwords.
    secrets : mapping of str to str
        The passwords, by name.
    """

    scheme: str
    user: str | None
    hosts: str
    path: str
    options: Mapping[str, str]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    def without_password(self, *excluded_options: str) -> str:
        """Return the URL without passwords and without some options."""
        user = "" if self.user is None else f"{quote(self.user, safe='')}@"
        options = {
            name: value for name, value in self.options.items() if name not in excluded_options
        }
        query = f"?{urlencode(options, quote_via=quote, safe='/:')}" if options else ""
        return f"{self.scheme}://{user}{self.hosts}{self.path}{query}"

    def masked(self, text: str) -> str:
        """Return a text in which the passwords of this address are masked."""
        for secret in self.secrets.values():
            if secret:
                text = text.replace(secret, "***").replace(quote(secret, safe=""), "***")
        return text


Messages = Mapping[str, str | tuple[type[MemlabError], str]]
"""Messages by the name of a client's exception or of a base class of it.

A message may come with the exception to raise instead of StoreError.
"""


@contextmanager
def translated_errors(
    name: str, address: Address, errors: tuple[type[BaseException], ...], messages: Messages
) -> Iterator[None]:
    """Raise errors of a server's client with a message that has no password."""
    try:
        yield
    except errors as error:
        class_names = [error_class.__name__ for error_class in type(error).mro()]
        nearest = next(class_name for class_name in class_names if class_name in messages)
        entry = messages[nearest]
        exception: type[MemlabError] = StoreError
        if isinstance(entry, str):
            message = entry
        else:
            exception, message = entry
        answer = str(error).strip() or type(error).__name__
        first_line = answer.splitlines()[0]
        text = message.format(answer=address.masked(first_line))
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
        return Path(path) if path else archive_elsewhere(self.canonical_name())

    @abstractmethod
    def canonical_name(self) -> str:
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
        raise _invalid_url(url) from None  # the message of the cause may have a password
    login, _, hosts = parts.netloc.rpartition("@")
    has_invalid_port = any(_INVALID_PORT.search(host) for host in hosts.split(","))
    if "://" not in url or has_invalid_port:
        raise _invalid_url(url)
    user, _, password = login.partition(":")
    secrets = {name: value for name, value in query if name in _SECRET_OPTIONS}
    if password:
        secrets.setdefault("password", unquote(password))
    plain_options = {name: value for name, value in query if name not in _SECRET_OPTIONS}
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


def _invalid_url(url: str) -> MemlabError:
    """Return the error for a URL that cannot be parsed."""
    return MemlabError(
        f"{without_passwords(url)} is not a URL that memlab understands; "
        "write SCHEME://USER@HOST:PORT/NAME"
    )
