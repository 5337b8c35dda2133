"""Reads the configuration: flags win over the environment, that over the file, that over defaults.

Every problem is found before anything is said: its key, and what is allowed there.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hotwired.config import LOCAL_NAME, Caller, Config
from hotwired.errors import ConfigInvalid, shown
from hotwired.settings import about

DEFAULT = "default"
FILE = "file"

_CALLERS = "callers"
_CALLER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_CALLER_RULE = "1 to 63 characters of [a-z0-9_-], the first a letter or digit"

Problems = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Override:
    """A value from the command line or the environment, as TOML would hold it, and from where."""

    value: object
    origin: str


@dataclass(frozen=True, slots=True)
class InForce:
    """What the daemon runs with, and where each setting that is no default came from.

    origins: by its key, such as "tcp.listen".
    """

    config: Config
    origins: Mapping[str, str]


def load(path: Path | None, overrides: Mapping[str, Override] | None = None) -> InForce:
    """Returns what is in force with a file, if there is one, and overrides by their keys.

    Raises ConfigInvalid, whose violations name the key of each problem.
    """
    reader = _Reader()
    if path is not None:
        reader.take_tables(_parsed(path), FILE)
    for key, override in (overrides or {}).items():
        section, _, name = key.partition(".")
        reader.take(SECTIONS[section], section, {name: override.value}, override.origin)
    config = reader.config()
    reader.problems += _together(config)
    if reader.problems:
        raise _invalid(path, reader.problems)
    return InForce(config, reader.origins)


def _section_of(name: str) -> type[Any]:
    factory = next(f for f in fields(Config) if f.name == name).default_factory
    assert isinstance(factory, type)  # noqa: S101 -- each section's default is its class
    return factory


SECTIONS: Mapping[str, type[Any]] = {
    f.name: _section_of(f.name) for f in fields(Config) if f.name != _CALLERS
}
"""The class of each section, in the order of the sample file."""


class _Reader:
    """Collects values, where they came from, and what is wrong with them."""

    def __init__(self) -> None:
        self.problems: Problems = []
        self.origins: dict[str, str] = {}
        self._values: dict[str, dict[str, Any]] = {}
        self._callers: list[str] = []

    def take_tables(self, tables: Mapping[str, Any], origin: str) -> None:
        for name, table in tables.items():
            if name == _CALLERS and isinstance(table, dict):
                for caller, entry in table.items():
                    self._take_caller(caller, entry, origin)
            elif name in SECTIONS:
                self.take(SECTIONS[name], name, table, origin)
            elif name == _CALLERS:
                self.problems.append((name, "must be tables, [callers.NAME]"))
            else:
                self.problems.append((_key(name), _unknown(name, [*SECTIONS, _CALLERS])))

    def take(self, section: type[Any], key: str, table: object, origin: str) -> None:
        if not isinstance(table, dict):
            self.problems.append((key, f"must be a table, [{key}]"))
            return
        kinds = {f.name: about(f.metadata).kind for f in fields(section)}
        for name, raw in table.items():
            path = f"{key}.{_key(name)}"
            if name not in kinds:
                self.problems.append((path, _unknown(name, kinds)))
                continue
            try:
                self._values.setdefault(key, {})[name] = kinds[name].read(raw)
                self.origins[path] = origin
            except ValueError:
                problem = f"{shown(str(raw))} is not allowed: it must be {kinds[name].allowed}"
                self.problems.append((path, problem))

    def _take_caller(self, name: str, table: object, origin: str) -> None:
        key = f"{_CALLERS}.{_key(name)}"
        if not _CALLER_NAME.fullmatch(name):
            self.problems.append((key, f"{shown(name)} is no name for a caller: {_CALLER_RULE}"))
            return
        if name == LOCAL_NAME:
            self.problems.append((key, "is what callers on the Unix socket are called"))
        self._callers.append(name)
        self.take(Caller, key, table, origin)

    def config(self) -> Config:
        sections = {name: cls(**self._values.get(name, {})) for name, cls in SECTIONS.items()}
        callers = {
            name: Caller(**self._values.get(f"{_CALLERS}.{name}", {})) for name in self._callers
        }
        return Config(**sections, callers=MappingProxyType(callers))


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except (OSError, UnicodeDecodeError) as exc:
        problem = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        raise ConfigInvalid(
            f"{path} can't be read: {problem}", metadata={"path": str(path)}
        ) from exc
    except tomllib.TOMLDecodeError as exc:
        raise ConfigInvalid(
            f"{path} is not TOML: {shown(str(exc), 200)}", metadata={"path": str(path)}
        ) from exc


def _together(config: Config) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with settings that are each allowed alone."""
    if config.tcp.listen:
        for name in ("certificate", "key", "client_ca"):
            if getattr(config.tcp, name) is None:
                yield f"tcp.{name}", "must be set with tcp.listen: TCP is never without mutual TLS"
    limits = config.limits
    if limits.max_uploads_bytes and limits.max_uploads_bytes < limits.max_vector_bytes:
        yield "limits.max_uploads_bytes", "must be 0, or limits.max_vector_bytes at least"
    if limits.max_message_bytes < limits.max_chunk_bytes + (1 << 20):
        yield "limits.max_message_bytes", "must be 1 MiB above limits.max_chunk_bytes at least"
    yield from _shared("sans", config.callers)
    yield from _shared("token_sha256", config.callers)
    for name, caller in config.callers.items():
        if not (caller.sans or caller.token_sha256):
            yield f"{_CALLERS}.{name}", "must have sans or token_sha256"


def _shared(what: str, callers: Mapping[str, Caller]) -> Iterator[tuple[str, str]]:
    holders: dict[str, str] = {}
    for name, caller in callers.items():
        for proof in getattr(caller, what):
            if (other := holders.setdefault(proof, name)) != name:
                yield f"{_CALLERS}.{name}.{what}", f"{shown(proof)} is that of {other!r} already"


def _unknown(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name[:63], names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(names)}"
    return f"there is no such setting{hint}"


def _key(name: str) -> str:
    """Returns a key as TOML has it in a path, and printable whatever it is."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else shown(name)


def _invalid(path: Path | None, problems: Problems) -> ConfigInvalid:
    where = f"{path} is" if path is not None else "the settings are"
    count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
    return ConfigInvalid(
        f"{where} not in order: {count}",
        metadata={"path": str(path or "")},
        violations=tuple(problems),
    )
