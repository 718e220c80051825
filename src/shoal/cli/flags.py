"""Settings as command-line flags, made from their declarations in `config`.

Each setting is `--section.name` and has a short name (`config.names`); `_` and `-` are the same in both.
"""

import argparse
import difflib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NoReturn, get_args, get_origin

from pydantic.fields import FieldInfo

from shoal.config.load import COMMAND_LINE, make_config, merged, read_config, read_run
from shoal.config.names import from_keywords, short_names
from shoal.config.own_code import look_in
from shoal.config.sections import settings_of
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.runs.folder import METRICS

NOT_FLAGS = {"tasks.sources", "rewards"}
"""Settings for files alone."""
COMMON = {
    "the run": "rounds seed checkpoint_every report_to",
    "questions": "tasks.suite tasks.only tasks.examples tasks.answer",
    "models": "policy.model policy.num_generations policy.max_completion_length policy.temperature policy.device "
    "policy.lora_r",
    "learning": "learner.learning_rate learner.loss_type",
    "the swarm": "round.nodes round.local round.peers",
    "the network": "network.name network.listen",
    "held-out questions": "evaluation.every evaluation.questions evaluation.samples",
    "code of your own, as module:attribute": "learner.factory selection.rule",
}
"""The settings that people change, in the groups of `--help`. `--help-all` has the others, too."""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """One line for a setting: its short flag alone, and lines of at least 110 characters."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=max(110, shutil.get_terminal_size().columns - 2))

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if len(action.option_strings) < 2 or action.nargs == 0 or isinstance(action.metavar, tuple):
            return super()._format_action_invocation(action)
        return f"{action.option_strings[0]} {self._format_args(action, action.dest)}"


class Parser(argparse.ArgumentParser):
    """An argument parser that says in one line what is wrong and what would be right."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=HelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (`{self.prog} --help`)")

    def shorten_usage(self) -> None:
        """Names the positional arguments, and not each flag, in the first line of the help."""
        formatter = self.formatter_class(prog=f"{self.prog} [OPTIONS]")
        formatter.add_usage(None, self._get_positional_actions(), [], prefix="")
        self.usage = formatter.format_help().strip()

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """The arguments in `argv`. Raises `UserError` for an unknown flag, with the nearest right one."""
        args, unknown = self.parse_known_args([_normalised(word) for word in argv])
        chosen = self._chosen(argv)
        lists = [action.dest for action in chosen._actions if not action.option_strings and action.nargs == "*"]
        if lists and not any(word.startswith("-") and " " not in word for word in unknown):
            # argparse takes a list in one piece: what stands behind a flag is left over
            setattr(args, lists[0], [*getattr(args, lists[0]), *unknown])
            unknown = []
        if unknown:
            known = [flag for parser in (self, chosen) for flag in parser._option_string_actions]
            near = difflib.get_close_matches(unknown[0].partition("=")[0], known, n=1, cutoff=0.5)
            chosen.error(f"unknown argument '{unknown[0]}'" + (f"; did you mean '{near[0]}'?" if near else ""))
        return args

    def _chosen(self, argv: Sequence[str]) -> argparse.ArgumentParser:
        """The parser of the subcommand in `argv`, or this one where there is none."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction) and argv and argv[0] in action.choices:
                chosen: argparse.ArgumentParser = action.choices[argv[0]]
                return chosen._chosen(argv[1:]) if isinstance(chosen, Parser) else chosen
        return self


class HelpAll(argparse.Action):
    """`--help-all`: the help with every setting."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        for action in parser._actions:
            action.help = getattr(action, "whole_help", action.help)
        parser.print_help()
        parser.exit()


def add_settings(
    parser: argparse.ArgumentParser,
    only: Sequence[str] = (),
    without: tuple[str, ...] = (),
    names: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> None:
    """Flags for the settings: all, or `only` those of these dotted names, less those that begin as one of `without`.

    `names`: short names in place of the usual ones; `defaults`: texts in place of the declared defaults. With `only`
    the help has all of them. Otherwise it has the common ones in a line each, and `--help-all` has every setting with
    its whole meaning.
    """
    fields = dict(settings_of(Config))
    short = short_names(list(fields)) | (dict(names) if names else {})
    chosen = [n for n in fields if n not in NOT_FLAGS and not n.startswith(without) and (not only or n in only)]
    defaults = defaults or {}
    groups: dict[str, Any] = {}

    def group(title: str) -> Any:
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        return groups[title]

    common = {n: title for title, members in COMMON.items() for n in members.split() if n in chosen and not only}
    for name in [*common, *(name for name in chosen if name not in common)]:
        field, section = fields[name], name.rpartition(".")[0]
        flags = dict.fromkeys([f"--{short[name]}", f"--{name}"] if name in short else [f"--{name}"])
        action = group(common.get(name) or f"[{section}]" if section else "the run").add_argument(
            *(flag.replace("_", "-") for flag in flags),
            dest=name,
            action="append" if get_origin(field.annotation) is list else "store",
            default=argparse.SUPPRESS,
            metavar=_metavar(field),
            help=_help(field, defaults.get(name), brief=not only) if only or name in common else argparse.SUPPRESS,
        )
        action.whole_help = _help(field, defaults.get(name))
    if not only:
        parser.add_argument("--help-all", action=HelpAll, nargs=0, help="show every setting")


def add_own_code(parser: argparse.ArgumentParser) -> None:
    """`--data`, `--task` and `--reward`: what in a file is a table of its own."""
    group = parser.add_argument_group("questions and rewards of your own")
    add_data(group)
    group.add_argument("--reward", action="append", metavar="NAME", help="a function as in TRL: module:attribute")
    group.add_argument("--reward-weights", nargs="+", type=float, metavar="W", help="what each is multiplied by: 1")


def add_files(parser: argparse.ArgumentParser) -> None:
    """Data sets as words without a flag: `shoal run questions.csv`. The first line of the help has them."""
    parser.add_argument("files", nargs="*", metavar="FILE", help=argparse.SUPPRESS)


def add_data(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """`--data` and `--task`: a data set as a task, and other tasks."""
    parser.add_argument(
        "--data",
        action="append",
        metavar="DATA",
        help="a data set: a file, a folder or a name on the Hub; or FILE,score=number (docs/guides/data.md)",
    )
    parser.add_argument("--task", action="append", metavar="NAME", help="a task of reasoning-gym, or module:attribute")


def given_settings(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given as flags, nested as in a file. Raises `UserError` for tasks and a suite at once."""
    names = {"data", "task", "reward", "reward_weights", *(name for name, _ in settings_of(Config))}
    given = {name: value for name, value in vars(args).items() if name in names and value is not None}
    if files := getattr(args, "files", []):
        if settings := [file for file in files if file.endswith(".toml")]:
            raise UserError(f"{settings[0]} is a file of settings: --config {settings[0]}")
        given["data"] = [*files, *given.get("data", [])]
    nested = from_keywords(given)
    of_suite = {"suite", "only"} & nested.get("tasks", {}).keys()
    if of_suite and {"data", "task"} & given.keys():
        raise UserError(f"--{min(of_suite)} is about the tasks of a suite: leave it out beside --task and --data")
    return nested


def add_allow_code(parser: argparse.ArgumentParser) -> None:
    """The flag of every command that reads settings from a file."""
    parser.add_argument(
        "--allow-code", action="store_true", help="run the code that the file names (module:attribute): if you trust it"
    )


def config_of(
    file: Path | None,
    given: dict[str, Any],
    allow_code: bool,
    only: Sequence[str] = (),
    below: Mapping[str, Any] = MappingProxyType({}),
) -> Config:
    """The settings in `file` with those that were `given` as flags over them. `only`: all that is taken from the file,
    by dotted names of settings or sections; none: everything. `below`: what holds where neither says anything. Raises
    `UserError`."""
    of_run = file and file.with_name(METRICS).exists()
    settings = (read_run if of_run else read_config)(file) if file else {}
    if only:
        settings = _picked(settings, only)
    if file:
        make_config(settings, str(file), allow_code)  # so that the file is blamed for what is wrong in it
        if allow_code:
            look_in(file.parent)
    if {"suite", "only"} & given.get("tasks", {}).keys():
        settings.get("tasks", {}).pop("sources", None)  # a suite in place of the file's own tasks
    typed = "model" in given.get("policy", {})
    return make_config(
        merged(dict(below), merged(settings, given)), COMMAND_LINE, allow_code=True, typed_endpoints=typed
    )


def _picked(settings: dict[str, Any], only: Sequence[str]) -> dict[str, Any]:
    """The settings of these dotted names. What has no sections where they should be is kept, to be refused."""
    found = {name: settings[name] for name in ("version",) if name in settings}
    for name in only:
        section, _, leaf = name.rpartition(".")
        inside = settings.get(section, {}) if section else settings
        if not isinstance(inside, dict):
            found[section] = inside
        elif leaf in inside:
            (found.setdefault(section, {}) if section else found)[leaf] = inside[leaf]
    return found


def _normalised(word: str) -> str:
    if not word.startswith("--"):
        return word
    flag, equals, value = word.partition("=")
    return flag.replace("_", "-") + equals + value


def _metavar(field: FieldInfo) -> str:
    one = get_args(field.annotation)[0] if get_origin(field.annotation) is list else field.annotation
    choices = [str(choice) for choice in get_args(one)] if get_origin(one) is Literal else []
    if choices:
        return "|".join(choices) if len(choices) < 4 else "NAME"
    kinds = [_plain(kind) for kind in (field.annotation, *get_args(field.annotation))]
    kinds = [kind for kind in kinds if kind in (int, float, bool, str)]
    return {int: "N", float: "X", bool: "true|false"}.get(kinds[0], "NAME") if kinds else "VALUE"


def _plain(kind: Any) -> Any:
    """A type without its bounds."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _help(field: FieldInfo, shown_default: str | None, brief: bool = False) -> str:
    default = shown_default or field.get_default(call_default_factory=True)
    shown = ", ".join(default) if isinstance(default, list) else str(default).lower() if default is not None else ""
    meaning = " ".join((field.description or "").split())
    if brief:
        meaning = meaning.partition(". ")[0].removesuffix(".")
    return f"{meaning} (default: {shown})".replace("(default: )", "").strip().replace("%", "%%")
