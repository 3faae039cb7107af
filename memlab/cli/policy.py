"""Options that name a policy and its settings, made from what the policies say of themselves."""

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from click.core import augment_usage_errors

import memlab.policies
from memlab.errors import MemlabError, PolicyError

if TYPE_CHECKING:
    from memlab.policies.named import Named
    from memlab.policies.typed import Setting


class PolicyCommand(click.Command):
    """A command whose help ends with whose rule each policy is; they are read when it is run."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the policies, and the settings of a class that ``--policy`` named before."""
        with formatter.section("Policies"):
            formatter.write_dl([(name, one.origin) for name, one in memlab.policies.NAMED.items()])
        asked = ctx.params.get("policy_names") or (ctx.params.get("policy_name"),)
        for name in asked:
            if name and name not in memlab.policies.NAMED:
                named = memlab.policies.policy_named(name)
                with formatter.section(f"Settings of {name} ({named.origin})"):
                    formatter.write_dl([_described(one) for one in named.settings.values()])


class SettingsCommand(PolicyCommand):
    """A command that takes a policy, and the settings of every one of the package, as options."""

    @property
    def _settings(self) -> list[click.Parameter]:
        takers: dict[str, list[tuple[str, Setting]]] = {}
        for policy, named in memlab.policies.NAMED.items():
            for setting in named.settings.values():
                if setting.metavar:
                    takers.setdefault(setting.option, []).append((policy, setting))
        return [
            click.Option(
                [option, _parameter_of(option)], metavar=some[0][1].metavar, help=_help_of(some)
            )
            for option, some in takers.items()
        ]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's parameters, settings of policies after ``--set``."""
        own = super().get_params(ctx)
        place = next(n for n, one in enumerate(own, start=1) if one.name == "given")
        taken = {option for one in own for option in one.opts}
        settings = [one for one in self._settings if not taken & {*one.opts}]
        return [*own[:place], *settings, *own[place:]]

    def invoke(self, ctx: click.Context) -> Any:
        """Give the command the policy that was asked for, by a setting alone the newest."""
        with augment_usage_errors(ctx):
            name = ctx.params.pop("policy_name")
            given = ctx.params.pop("given")
            named = memlab.policies.policy_named(name or "recent")
            typed = {}
            for option in self._settings:
                text = ctx.params.pop(option.name or "", None)
                if text is not None:
                    typed[_setting_of(named, option.opts[0])] = text
            typed |= dict(map(split_setting, given))
            if name == "ttl" and "ttl" not in typed:
                raise click.UsageError(
                    "the policy 'ttl' needs --ttl, such as 30d; with 0d goes what has run out by "
                    "an expiry of its own"
                )
            ctx.params["policy"] = made(named, typed) if name or typed else None
        return super().invoke(ctx)


def _parameter_of(option: str) -> str:
    """Return the name under which a command gets an option of policies."""
    return f"setting_{option.removeprefix('--').replace('-', '_')}"


def _setting_of(named: "Named", option: str) -> str:
    """Return which setting of a policy an option gives; of a policy without it, another's."""
    policies = [named, *memlab.policies.NAMED.values()]
    return next(
        name
        for policy in policies
        for name, setting in policy.settings.items()
        if setting.option == option
    )


def policy_option(**more: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the options ``--policy`` and ``--set``."""
    several = bool(more.get("multiple"))
    policy = click.option(
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
    setting = click.option(
        "--set",
        "given",
        metavar="NAME=VALUE",
        multiple=True,
        help="A setting by its name in Python; for a class of your own, and any other.",
    )
    return lambda command: policy(setting(command))


def _names_beginning(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the policies whose names begin so, for a shell."""
    return [name for name in memlab.policies.NAMED if name.startswith(incomplete)]


def made(named: "Named", texts: Mapping[str, str]) -> "memlab.Policy":
    """Return a policy with what these texts mean to its settings."""
    from memlab.policies.named import policy_of

    try:
        return policy_of(named, texts)
    except PolicyError:
        raise
    except (ValueError, TypeError) as error:
        name, _, words = str(error).partition("=")
        is_option = ":" not in named.name and name in named.settings
        said = f"{named.settings[name].option} {words}" if is_option else str(error)
        raise click.UsageError(said) from error


def made_each(
    names: Sequence[str], sizes: Mapping[str, Any], given: Sequence[str], *, both: bool
) -> "list[memlab.Policy]":
    """Return the policies of these names to compare, with each of the settings given."""
    from memlab.policies.named import check_known
    from memlab.replay.comparison import variants

    tried = list(map(memlab.policies.policy_named, names))
    texts: dict[str, list[str]] = {}
    for name, text in map(split_setting, given):
        texts.setdefault(name, []).append(text)
    check_known(texts, tried)
    return [made(*each) for each in variants(tried, sizes, texts, both=both)]


def split_setting(text: str) -> tuple[str, str]:
    """Return name and value of a ``--set``."""
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--set {text} has no value; write --set {text}=VALUE")
    return name.strip(), value


@contextmanager
def faults_of(*policies: "memlab.Policy | None") -> Iterator[None]:
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


def _help_of(takers: "Sequence[tuple[str, Setting]]") -> str:
    """Return what a setting means to each policy that takes it."""
    meanings: dict[str, list[str]] = {}
    for policy, setting in takers:
        meanings.setdefault(setting.help, []).append(policy)
    text = "; ".join(f"{help_} ({', '.join(who)})" for help_, who in meanings.items())
    return f"{text[:1].upper()}{text[1:]}."


def _described(setting: "Setting") -> tuple[str, str]:
    """Return a setting and what it means, for a list."""
    from memlab.policies.typed import REQUIRED

    default = "" if setting.default is REQUIRED else f"  [default: {setting.default}]"
    return f"--set {setting.name}={setting.metavar or '…'}", f"{setting.help}{default}"
