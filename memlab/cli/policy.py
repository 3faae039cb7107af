"""Options that name a policy and its settings, made from what the policies say of themselves."""

import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args, get_origin

import click

from memlab.errors import MemlabError, PolicyError

if TYPE_CHECKING:
    from memlab.policies import Policy
    from memlab.policies.named import Named
    from memlab.policies.typed import Setting

_METAVARS: Final = {int: "N", float: "X", timedelta: "AGE", bool: "yes|no"}


class PolicyCommand(click.Command):
    """A command whose help ends with whose rule each policy is, and what one of your own takes.

    What the policies say of themselves is read when the command is run, not when all commands are
    listed.
    """

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the policies, and the settings of a class that ``--policy`` named before."""
        from memlab.policies import NAMED, policy_named

        with formatter.section("Policies"):
            formatter.write_dl([(name, one.origin) for name, one in NAMED.items()])
        asked = ctx.params.get("policy_names") or (ctx.params.get("policy_name"),)
        for name in asked:
            if name and name not in NAMED:
                named = policy_named(name)
                with formatter.section(f"Settings of {name} ({named.origin})"):
                    formatter.write_dl([_described(one) for one in named.settings.values()])


class SettingsCommand(PolicyCommand):
    """A command that takes the settings of every policy of the package as options."""

    @cached_property
    def _settings(self) -> list[click.Parameter]:
        return [
            click.Option([one.option, name], metavar=_metavar(one), help=_help_of(takers))
            for name, takers in _takers().items()
            for one in list(takers.values())[:1]
        ]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's parameters, settings of policies after ``--set``."""
        own = super().get_params(ctx)
        place = next(n for n, one in enumerate(own, start=1) if one.name == "given")
        taken = {option for one in own for option in one.opts}
        settings = [one for one in self._settings if not taken & {*one.opts}]
        return [*own[:place], *settings, *own[place:]]


def policy_option(**more: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option ``--policy``."""
    several = bool(more.get("multiple"))
    return click.option(
        "--policy",
        "policy_names" if several else "policy_name",
        metavar="NAME",
        is_eager=True,  # so that --help after it can say what it takes
        shell_complete=_names_beginning,
        **{
            "help": "The rule that decides: a name below, or your own package.module:Class.  "
            "[default: what memlab.toml remembers; recent where a cap is given]"
        }
        | more,
    )


def _names_beginning(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the policies whose names begin so, for a shell."""
    from memlab.policies import NAMED

    return [name for name in NAMED if name.startswith(incomplete)]


def set_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--set`` to a command."""
    return click.option(
        "--set",
        "given",
        metavar="NAME=VALUE",
        multiple=True,
        help="A setting by its name in Python; for a class of your own, and any other.",
    )(command)


class Chosen(NamedTuple):
    """A policy that the command line names, and what was given for it."""

    policy: "Policy"
    name: str
    settings: Mapping[str, Any]


def policy_asked(
    name: str | None, options: Mapping[str, str | None], given: Collection[str]
) -> Chosen | None:
    """Return the policy that the command line names, by a setting alone the newest; or None."""
    from memlab.policies import policy_named

    texts = {key: text for key, text in options.items() if text is not None}
    if not (name or given or texts):
        return None
    name = name or "recent"
    named = policy_named(name)
    texts |= dict(map(split_setting, given))
    if foreign := sorted(texts.keys() - named.settings.keys()):
        raise no_such_setting(foreign, [named])
    if name == "ttl" and "ttl" not in texts:
        raise click.UsageError(
            "the policy 'ttl' needs --ttl, such as 30d; with 0d goes what has run out by an expiry "
            "of its own"
        )
    return made(named, texts)


def typed_again(
    name: str | None, options: Mapping[str, str | None], given: Collection[str]
) -> list[str]:
    """Return the words that name the same policy to another command."""
    context = click.get_current_context()
    spelled = {one.name: one.opts[0] for one in context.command.get_params(context)}
    pairs = [("--policy", name)] if name else []
    pairs += [(spelled[key], text) for key, text in options.items() if text is not None]
    pairs += [("--set", each) for each in given]
    return [word for pair in pairs for word in pair]


def made(named: "Named", texts: Mapping[str, str]) -> Chosen:
    """Return a policy with what these texts mean to its settings."""
    from memlab.policies.typed import REQUIRED

    own = named.settings.items()
    if missing := [one for key, one in own if one.default is REQUIRED and key not in texts]:
        raise click.UsageError(f"the policy {named.name!r} needs {_options(named, missing)}")
    try:
        settings = {key: named.settings[key].parsed(text) for key, text in texts.items()}
        return Chosen(named.make(**settings), named.name, settings)
    except (ValueError, TypeError) as error:
        name, _, words = str(error).partition("=")
        is_option = ":" not in named.name and name in named.settings
        said = f"{named.settings[name].option} {words}" if is_option else str(error)
        raise click.UsageError(said) from error


def split_setting(text: str) -> tuple[str, str]:
    """Return name and value of a ``--set``."""
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--set {text} has no value; write --set {text}=VALUE")
    return name.strip(), value


def no_such_setting(names: Collection[str], policies: "Sequence[Named]") -> click.UsageError:
    """Return the error for settings that none of some policies has."""
    from memlab.policies import NAMED

    known = {key: one.option for named in NAMED.values() for key, one in named.settings.items()}
    foreign = ", ".join(known.get(name, name) for name in names)
    takes = "; ".join(
        f"{named.name!r}, which takes {_options(named, named.settings.values())}"
        for named in policies
    )
    return click.UsageError(f"{foreign} is no setting of the policy {takes}")


@contextmanager
def faults_of(*policies: "Policy | None") -> Iterator[None]:
    """Say in a sentence what a class of the user's own failed of, and where."""
    own = [step.address for one in policies if one is not None for step in (one, *one.steps)]
    own = [address for address in own if ":" in address]
    try:
        yield
    except (MemlabError, click.ClickException):
        raise
    except Exception as error:
        if not own:
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise PolicyError(
            f"{', '.join(dict.fromkeys(own))} failed: {type(error).__name__}: {error} "
            f"({last.filename}, line {last.lineno}); nothing was changed"
        ) from error


def _takers() -> "dict[str, dict[str, Setting]]":
    """Return by setting which policies take it."""
    from memlab.policies import NAMED

    takers: dict[str, dict[str, Setting]] = {}
    for named in NAMED.values():
        for name, setting in named.settings.items():
            if _metavar(setting):
                takers.setdefault(name, {})[named.name] = setting
    return takers


def _metavar(setting: "Setting") -> str:
    """Return what stands for a value in a line of help; nothing where it cannot be a text."""
    kinds = [one for one in get_args(setting.type) or (setting.type,) if one is not type(None)]
    if get_origin(setting.type) is Literal:
        return "|".join(map(str, kinds))
    if get_origin(setting.type) is tuple:
        return "NAMES"
    return _METAVARS.get(kinds[0], "TEXT" if kinds[0] is str else "")


def _help_of(takers: "Mapping[str, Setting]") -> str:
    """Return what a setting means to each policy that takes it."""
    meanings: dict[str, list[str]] = {}
    for policy, setting in takers.items():
        meanings.setdefault(setting.help, []).append(policy)
    text = "; ".join(f"{help_} ({', '.join(who)})" for help_, who in meanings.items())
    return f"{text[:1].upper()}{text[1:]}."


def _described(setting: "Setting") -> tuple[str, str]:
    """Return a setting and what it means, for a list."""
    from memlab.policies.typed import REQUIRED

    default = "" if setting.default is REQUIRED else f"  [default: {setting.default}]"
    return f"--set {setting.name}={_metavar(setting) or '…'}", f"{setting.help}{default}"


def _options(named: "Named", settings: "Iterable[Setting]") -> str:
    """Return what to write for some settings of a policy."""
    if ":" not in named.name:
        return ", ".join(one.option for one in settings if _metavar(one)) or "no settings"
    return ", ".join(f"--set {one.name}=VALUE" for one in settings) or "no settings"
