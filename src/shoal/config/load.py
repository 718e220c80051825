"""Settings from files and flags: read, checked, and what is wrong with them said in one line."""

import difflib
import logging
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from shoal.config.names import from_keywords
from shoal.config.policy import is_endpoint
from shoal.config.rewards import reward_section
from shoal.config.sections import Section, settings_of
from shoal.config.settings import CONFIG_VERSION, Config
from shoal.config.tasks import TaskSpec
from shoal.errors import UserError, nearest
from shoal.untrusted import parse_toml, printable, read_regular

MOST_BYTES: Final = 2**20
"""Of a file of settings."""
SHOWN, MOST_SHOWN = 120, 400
"""Characters of a value, and of a warning, that are shown."""
RESUMABLE: Final = {"rounds", "threads", "checkpoint_every", "report_to"}
"""Settings that a resumed run may change."""
COMMAND_LINE: Final = "the command line"
"""A source of settings. A message about it names flags."""
GONE: Final = {"learner.beta": 0.0}
"""Settings of earlier versions, and the values with which training now does the same."""
KINDS = {"int", "float", "bool"}
"""What pydantic adds to the name of a setting of several types."""
_warn = cache(logging.getLogger(__name__).warning)  # says each thing once


def read_config(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, not yet checked. Raises `UserError` if it cannot be read."""
    try:
        return parse_toml(read_regular(path, MOST_BYTES))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{path} is not TOML as shoal reads it: {error}") from error


def unknown_in(settings: dict[str, Any]) -> dict[str, Any]:
    """Takes out of `settings` what this version does not know, and gives that by its dotted names."""
    unknown = {}
    try:
        Config.model_validate({k: v for k, v in settings.items() if k != "version"})
    except ValidationError as error:
        for *above, last in [fault["loc"] for fault in error.errors() if fault["type"] == "extra_forbidden"]:
            section: Any = settings
            for part in above:
                section = section[part]
            unknown[".".join(map(str, [*above, last]))] = section.pop(last)
    return unknown


def ignored(settings: dict[str, Any]) -> str:
    """Takes out of `settings` what this version does not know, and says so in a line; "" if it knows all."""
    names = ", ".join(unknown_in(settings))
    return names and f"settings that this version does not know are ignored: {printable(names, MOST_SHOWN)}"


def read_run(file: Path) -> dict[str, Any]:
    """The settings of a run, maybe of another version: a warning says what is ignored. Raises `UserError`."""
    if line := ignored(settings := read_config(file)):
        _warn(f"{printable(str(file))}: {line}")
    return settings


def make_config(
    settings: dict[str, Any],
    source: str,
    allow_code: bool = False,
    typed_endpoints: bool = False,
    kind: type[Config] = Config,
) -> Config:
    """A `Config` (or a `kind` of it) of nested settings. Raises `UserError` with the first thing that is wrong and what
    would be right.

    What comes from a file is not trusted. `allow_code`: the user allows this source to name code that is run.
    `typed_endpoints`: the user typed the addresses of endpoints, so that they may receive the user's key.
    """
    version = settings.get("version", CONFIG_VERSION)
    if version != CONFIG_VERSION:
        raise UserError(
            f"{source} has version {_shown(version)} of the format, and this shoal reads version {CONFIG_VERSION}: use "
            "the shoal that wrote it, or start a new run from one of its models (--model CHECKPOINT/NODE)"
        )
    try:
        config = kind.model_validate({k: v for k, v in settings.items() if k != "version"})
    except ValidationError as error:
        errors = error.errors()
        unknown = [fault for fault in errors if fault["type"] == "extra_forbidden"]  # it may be missed as well
        said = _explain((unknown or errors)[0], kind, settings, source == COMMAND_LINE)
        raise UserError(f"{source}: {said}") from error
    if not allow_code:
        refuse_code(config.code, source)
    config.policy._from_file = not typed_endpoints and any(map(is_endpoint, config.policy.model))
    return config


def config_from_keywords(settings: dict[str, Any]) -> Config:
    """A `Config` of the keyword arguments of `shoal.run`, which the caller's own code gives. Raises `UserError`."""
    return make_config(from_keywords(settings), "the arguments", allow_code=True, typed_endpoints=True)


def load_config(path: str | Path, allow_code: bool = False) -> Config:
    """The settings in a TOML file.

        config = shoal.load_config("my.toml")

    A file may come from somebody else. So one that names code (module:attribute) is refused unless you `allow_code`,
    and no key is sent to the endpoints that it names. Raises `UserError`.
    """
    return make_config(read_config(Path(path)), str(path), allow_code)


def resumed_config(folder: Path, changes: dict[str, Any], allow_code: bool, network: bool = False) -> Config:
    """The settings of the run in `folder`, with nested `changes` over them. Raises `UserError` if one of these must not
    change. `network`: whether settings of `[network]` may."""
    allowed = RESUMABLE | ({"network"} if network else set())
    fixed = sorted(set(changes) - allowed)
    if fixed:
        raise UserError(
            f"a resumed run keeps its settings: {', '.join(fixed)} cannot change, only {', '.join(sorted(allowed))} can"
        )
    file = folder / "config.toml"
    if not file.exists():
        raise UserError(f"{folder} is not the folder of a run (it has no config.toml): nothing to resume")
    kept = read_config(file)
    if changed := [f"{k} = {_shown(v)}" for k, v in unknown_in(kept).items() if v != GONE.get(k, ...)]:
        raise UserError(
            f"{folder} was trained with settings that this version does not have ({', '.join(changed)}), so it would "
            "learn otherwise: resume it by the version that made it, or start a new run from its model (--model)"
        )
    make_config(kept, str(file), allow_code)  # so that the file is blamed for what is wrong in it
    return make_config(merged(kept, changes), COMMAND_LINE, allow_code=True)


def refuse_code(code: list[str], source: str) -> None:
    """Raises `UserError` if `source` names any code: to import it is to run it."""
    if code:
        raise UserError(
            f"{source} names code that would run here ({_shown(code[0])}): add --allow-code if you trust the file and "
            "that code"
        )


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`below` with what `above` sets differently."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def _explain(error: Any, config: type[Config], settings: dict[str, Any], typed: bool) -> str:
    """One line about the first thing that is wrong in `settings`. `typed`: as flags."""
    where = [str(part) for part in error["loc"]]
    section: Any = config
    kind = settings["rewards"][int(where[1])]["kind"] if where[0] == "rewards" and len(where) > 2 else ""
    name = ".".join(part for part in where if not part.startswith(("literal[", "constrained-")) and part not in KINDS)
    match error["type"]:
        case "extra_forbidden" if kind:
            hint = nearest(where[-1], reward_section(kind).model_fields)
            return f"there is no setting '{name}' for a reward of kind '{kind}'; {hint}"
        case "extra_forbidden":
            for part in where[:-1]:
                if part in section.model_fields:
                    annotation = section.model_fields[part].annotation
                    section = TaskSpec if annotation == list[TaskSpec] else annotation
            return f"there is no setting '{'.'.join(where)}'; {nearest_setting(where, section)}"
        case "missing" | "string_too_short" if kind:
            return f"{'.'.join(where[:2])}: a reward of kind '{kind}' needs '{where[-1]}'"
        case "missing":
            return f"the setting '{name}' is missing"
        case "string_pattern_mismatch" if where[-1] == "function":
            return f"a reward function is module:attribute, such as my.py:score, and not {_shown(error['input'])}"
        case "value_error":  # settings that do not agree: the message names them
            return f"{name}: {error['ctx']['error']}"
    given = f"{name} = {_shown(error['input'])}"
    if typed:  # a flag has no place in a list
        flag = name.rstrip("0123456789").removesuffix(".").replace("_", "-")
        given = f"--{flag} {printable(str(error['input']), SHOWN)}"
    return f"{given}: {error['msg'][:1].lower()}{error['msg'][1:]}"


def _shown(value: Any) -> str:
    """A value as a message shows it."""
    return printable(repr(value), SHOWN)


def nearest_setting(where: list[str], section: type[Section]) -> str:
    """A hint for an unknown setting: the most similar name of its section or of all sections."""
    names = {name.rpartition(".")[2]: name for name, _ in settings_of(Config)}
    names |= {name: ".".join([*where[:-1], name]) for name in section.model_fields}
    near = difflib.get_close_matches(where[-1], names, n=1, cutoff=0.6)
    return f"did you mean '{names[near[0]]}'?" if near else "`shoal run --help-all` lists them all"
