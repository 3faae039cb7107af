"""Options that name a policy and its settings, generated from the policies' own settings."""

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import augment_usage_errors

import memlab.policies
from memlab.errors import MemlabError, PolicyError

if TYPE_CHECKING:
    from memlab.policies.named import PolicyEntry
    from memlab.policies.typed import Setting


_SETTING_PREFIX: Final = "setting_"
"""Beginning of the parameter names of policies' settings."""
_POLICY_PARAMETERS: Final = {"policy_name", "policy_names", "assignments", "count", "age", "tokens"}
"""Names of the other parameters that choose a policy or its size."""


class PolicyCommand(click.Command):
    """A command with options that choose policies; its help lists all policies.

    The policies are loaded when the help is shown. Options that choose a policy or set one of its
    settings are in a section of their own.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; for a setting that is no option here, explain how to give it."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = _find_setting(error.option_name)
            if name is None:
                raise
            raise click.UsageError(
                f"{error.option_name} is a setting of a policy; here it is given as "
                f"--set {name}=VALUE",
                ctx,
            ) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the command itself, then those of policies."""
        other_options: list[tuple[str, str]] = []
        policy_options: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None or isinstance(parameter, click.Argument):
                continue
            name = parameter.name or ""
            is_of_policies = name in _POLICY_PARAMETERS or name.startswith(_SETTING_PREFIX)
            if is_of_policies:
                policy_options.append(record)
            else:
                other_options.append(record)
        with formatter.section("Options"):
            formatter.write_dl(other_options)
        with formatter.section("Policy options"):
            formatter.write_dl(policy_options)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the policies, and the settings of a class that ``--policy`` named before."""
        from memlab.policies.plugins import plugin_names

        built_in = memlab.policies.NAMED
        rows = [(name, policy.origin) for name, policy in built_in.items()]
        for plugin, package in sorted(plugin_names().items()):
            if plugin not in built_in:
                rows.append((plugin, f"of the installed package {package}"))
        with formatter.section("Policies"):
            formatter.write_dl(rows)
        named_policies = [*ctx.params.get("policy_names", ())]
        if ctx.params.get("policy_name"):
            named_policies.append(ctx.params["policy_name"])
        for name in named_policies:
            if name not in built_in:
                entry = memlab.policies.policy_named(name)
                with formatter.section(f"Settings of {name} ({entry.origin})"):
                    formatter.write_dl([_help_row(setting) for setting in entry.settings.values()])


class SettingsCommand(PolicyCommand):
    """A command that takes a policy, with an option for each setting of memlab's policies."""

    @property
    def _settings(self) -> list[click.Parameter]:
        """One option for each setting of memlab's policies; policies may share an option."""
        settings_by_option: dict[str, list[tuple[str, Setting]]] = {}
        for policy, entry in memlab.policies.NAMED.items():
            for setting in entry.settings.values():
                if setting.metavar:
                    settings_by_option.setdefault(setting.option, []).append((policy, setting))
        options: list[click.Parameter] = []
        for option, settings in settings_by_option.items():
            _, first = settings[0]
            names = [option, _parameter_name(option)]
            options.append(click.Option(names, metavar=first.metavar, help=_option_help(settings)))
        return options

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's parameters, with the settings of policies after ``--set``."""
        parameters = super().get_params(ctx)
        names = [parameter.name for parameter in parameters]
        index = names.index("assignments") + 1
        used_options = {option for parameter in parameters for option in parameter.opts}
        settings = [setting for setting in self._settings if not used_options & set(setting.opts)]
        return [*parameters[:index], *settings, *parameters[index:]]

    def invoke(self, ctx: click.Context) -> Any:
        """Pass the policy to the command; a setting without a policy is one of ``recent``."""
        with augment_usage_errors(ctx):
            name = ctx.params.pop("policy_name")
            assignments = ctx.params.pop("assignments")
            entry = memlab.policies.policy_named(name or "recent")
            texts = {}
            for option in self._settings:
                text = ctx.params.pop(option.name or "", None)
                if text is not None:
                    texts[_setting_name(entry, option.opts[0])] = text
            for assignment in assignments:
                setting, value = parse_assignment(assignment)
                texts[setting] = value
            if name == "ttl" and "ttl" not in texts:
                raise click.UsageError(
                    "the policy 'ttl' needs --ttl, such as 30d; 0d deletes only memories whose "
                    "own expiry has passed"
                )
            policy = None
            if name or texts:
                policy = parse_policy(entry, texts)
            ctx.params["policy"] = policy
        return super().invoke(ctx)


def _parameter_name(option: str) -> str:
    """Return the name of the parameter of a setting's option."""
    return f"{_SETTING_PREFIX}{option.removeprefix('--').replace('-', '_')}"


def _setting_name(entry: "PolicyEntry", option: str) -> str:
    """Return the name of a policy's setting with this option.

    If the policy has none, return the name in another policy: parsing the settings then fails with
    a message that names it.
    """
    for name, setting in entry.settings.items():
        if setting.option == option:
            return name
    name_in_another_policy = _find_setting(option)
    if name_in_another_policy is None:
        raise LookupError(f"no policy has a setting with the option {option}")
    return name_in_another_policy


def _find_setting(option: str) -> str | None:
    """Return the name of the first setting of any policy with this option; None without one."""
    for policy in memlab.policies.NAMED.values():
        for name, setting in policy.settings.items():
            if setting.option == option:
                return name
    return None


_POLICY_HELP = (
    "The rule that decides: a name below, or your own package.module:Class.  "
    "[default: from memlab.toml; recent if a cap is given]"
)


def policy_option(
    *,
    text: str = _POLICY_HELP,
    multiple: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the options ``--policy`` and ``--set`` to a command."""
    name = "policy_names" if multiple else "policy_name"
    policy = click.option(
        "--policy",
        name,
        metavar="NAME",
        multiple=multiple,
        is_eager=True,  # so that a --help after it can list the policy's settings
        shell_complete=_complete_policy_name,
        help=text,
    )
    setting = click.option(
        "--set",
        "assignments",
        metavar="NAME=VALUE",
        multiple=True,
        help="A setting of a policy by its name in Python, also of a class of your own.",
    )
    return lambda command: policy(setting(command))


def _complete_policy_name(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a policy in the shell."""
    from memlab.policies.plugins import plugin_names

    names = [*memlab.policies.NAMED, *plugin_names()]
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def parse_policy(entry: "PolicyEntry", texts: Mapping[str, str]) -> "memlab.Policy":
    """Return a policy with settings parsed from text; raise a UsageError for an invalid one."""
    from memlab.policies.named import policy_of

    try:
        return policy_of(entry, texts)
    except PolicyError:
        raise
    except (ValueError, TypeError) as error:
        message = str(error)
        # the error begins with the setting in Python, such as "max_tokens=…"
        name, _, explanation = message.partition("=")
        is_built_in = ":" not in entry.name
        if is_built_in and name in entry.settings:
            message = f"{entry.settings[name].option} {explanation}"
        raise click.UsageError(message) from error


def policies_to_compare(
    names: Sequence[str],
    sizes: Mapping[str, Any],
    assignments: Sequence[str],
    *,
    vary_both_sizes: bool,
) -> "list[memlab.Policy]":
    """Return the policies to compare: each name with each of the given sizes and settings.

    `vary_both_sizes` varies the number and the tokens of a policy that has both.
    """
    from memlab.policies.named import check_known
    from memlab.replay.parameter_grid import variants

    policies = [memlab.policies.policy_named(name) for name in names]
    values: dict[str, list[str]] = {}
    for assignment in assignments:
        name, value = parse_assignment(assignment)
        values.setdefault(name, []).append(value)
    check_known(values, policies)
    entries_with_texts = variants(policies, sizes, values, both=vary_both_sizes)
    return [parse_policy(entry, texts) for entry, texts in entries_with_texts]


def parse_assignment(text: str) -> tuple[str, str]:
    """Split the NAME=VALUE of a ``--set`` option into name and value."""
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--set {text} has no value; write --set {text}=VALUE")
    return name.strip(), value


@contextmanager
def explain_policy_errors(*policies: "memlab.Policy | None") -> Iterator[None]:
    """Convert an error in the block to a PolicyError if the policies include a user's own class.

    The message names the file and the line.
    """
    own_classes = []
    for policy in policies:
        if policy is None:
            continue
        for step in (policy, *policy.steps):
            is_own_class = ":" in step.address
            if is_own_class and step.address not in own_classes:
                own_classes.append(step.address)
    try:
        yield
    except (MemlabError, click.ClickException):
        raise
    except Exception as error:
        if not own_classes:
            raise
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise PolicyError(
            f"{', '.join(own_classes)} failed: {type(error).__name__}: {error} "
            f"({frame.filename}, line {frame.lineno}); nothing was changed"
        ) from error


def _option_help(settings: "Sequence[tuple[str, Setting]]") -> str:
    """Join the help of settings that share an option, with the policies of each text."""
    policies_by_meaning: dict[str, list[str]] = {}
    for policy, setting in settings:
        policies_by_meaning.setdefault(setting.help, []).append(policy)
    meanings = []
    for meaning, policies in policies_by_meaning.items():
        meanings.append(f"{meaning} ({', '.join(policies)})")
    text = "; ".join(meanings)
    return f"{text[:1].upper()}{text[1:]}."


def _help_row(setting: "Setting") -> tuple[str, str]:
    """Return a setting and its help as a row of the list of settings."""
    from memlab.policies.typed import REQUIRED

    default = ""
    if setting.default is not REQUIRED:
        default = f"  [default: {setting.default}]"
    return f"--set {setting.name}={setting.metavar or '…'}", f"{setting.help}{default}"
