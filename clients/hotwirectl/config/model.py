"""What a configuration may say, and the error for one that says anything else."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import click

from hotwirectl.near import question
from hotwirectl.values import FORMATS, MAX_TIMEOUT, parse_server, parse_timeout

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
NAME_RULE = "1 to 63 characters of [A-Za-z0-9._-], the first a letter or digit"
_TOP = ("current", "contexts")


class ConfigError(click.UsageError):
    """Raised for a configuration that cannot be used: the file, the key and what is allowed."""


@dataclass(frozen=True)
class Context:
    """A daemon and how to speak to it; None where the context does not say.

    Attributes:
        name: What it is called; empty for the context that says nothing.
        server: The address.
        timeout: The seconds a call may take.
        output: How to print.
        ca, cert, key: PEM files for TLS.
        token_file: A file whose content proves who calls.
    """

    name: str = ""
    server: str | None = None
    timeout: float | None = None
    output: str | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token_file: Path | None = None

    def settings(self) -> dict[str, str | float]:
        """Returns what it says, by key, paths as text."""
        said = ((name, getattr(self, name)) for name in KEYS)
        return {k: str(v) if isinstance(v, Path) else v for k, v in said if v is not None}


KEYS = tuple(f.name for f in fields(Context) if f.name != "name")


@dataclass(frozen=True)
class Config:
    """All contexts by name, and the one in use.

    Attributes:
        path: The file, whether it exists or not; None if there is no place for one.
        current: The name of the context in use, if one is.
        contexts: Every context by its name.
    """

    path: Path | None = None
    current: str | None = None
    contexts: Mapping[str, Context] = field(default_factory=dict)

    def context(self, name: str) -> Context:
        """Returns the context of that name.

        Raises:
            ConfigError: There is none.
        """
        if name not in self.contexts:
            raise missing(name, self.contexts, self.path)
        return self.contexts[name]


def missing(name: str, known: Collection[str], path: Path | None) -> ConfigError:
    """Returns the error for a context that is not there, with the one that was meant."""
    if not known:
        return ConfigError(f"there is no context {name!r}: {path or 'the configuration'} has none")
    instead = question(name, known) or f"; {path} has {', '.join(sorted(known))}"
    return ConfigError(f"there is no context {name!r}{instead}")


def parse(form: Mapping[str, Any], path: Path) -> Config:
    """Returns the configuration that a TOML document holds.

    Raises:
        ConfigError: A key is unknown, or a value is not what is allowed there.
    """
    _check_keys(form, _TOP, "", path)
    tables = _table(form.get("contexts", {}), "contexts", path)
    contexts = {name: _context(name, table, path) for name, table in tables.items()}
    current = form.get("current")
    if current is not None and not (isinstance(current, str) and current in contexts):
        known = ", ".join(sorted(contexts)) or "none"
        near = question(str(current), contexts)
        raise _wrong(path, "current", current, f"the name of one, of which there are {known}{near}")
    return Config(path, current, contexts)


def check_name(name: str) -> str:
    """Returns the name; raises ValueError unless a context may be called so."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name for a context: {NAME_RULE}")
    return name


def _context(name: str, form: object, path: Path) -> Context:
    at = f"contexts.{name}"
    if not _NAME.fullmatch(name):
        raise _wrong(path, "contexts", name, f"names of {NAME_RULE}")
    table = _table(form, at, path)
    _check_keys(table, KEYS, f"{at}.", path)
    return Context(name, **{k: _value(k, v, at, path) for k, v in table.items()})


def _value(key: str, value: object, at: str, path: Path) -> Any:
    read, allowed = _VALUES.get(key, (_file, "the path of a file, as text"))
    try:
        found = read(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise _wrong(path, f"{at}.{key}", value, allowed) from error
    return path.parent / found if isinstance(found, Path) else found


def _server(value: object) -> str:
    return parse_server(_text(value))


def _timeout(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return parse_timeout(str(value))


def _output(value: object) -> str:
    if value not in FORMATS:
        raise ValueError
    return _text(value)


def _file(value: object) -> Path:
    if not _text(value) or "\0" in _text(value):
        raise ValueError
    try:
        return Path(_text(value)).expanduser()
    except RuntimeError as error:  # it begins with ~, and there is no home
        raise ValueError from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


_VALUES: dict[str, tuple[Callable[[object], Any], str]] = {
    "server": (_server, "unix:PATH or HOST:PORT, as text"),
    "timeout": (_timeout, f"a number of seconds above 0, up to {MAX_TIMEOUT:g}"),
    "output": (_output, f"one of {', '.join(FORMATS)}"),
}


def _table(form: object, at: str, path: Path) -> Mapping[str, Any]:
    if not isinstance(form, dict):
        raise _wrong(path, at, form, "a table")
    return form


def _check_keys(form: Mapping[str, Any], known: tuple[str, ...], at: str, path: Path) -> None:
    for key in form:
        if key not in known:
            near = question(key, known)
            raise ConfigError(f"{path}: {at}{key} is unknown; allowed are {', '.join(known)}{near}")


def _wrong(path: Path, key: str, value: object, allowed: str) -> ConfigError:
    return ConfigError(f"{path}: {key} is {value!r}; allowed is {allowed}")
