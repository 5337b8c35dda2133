"""Writes the configuration as TOML: the commented sample, and what is in force."""

import textwrap
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from hotwired.config import Caller, Config
from hotwired.config_file import DEFAULT, SECTIONS, InForce
from hotwired.settings import about

_WIDTH = 98
_HEAD = """\
# hotwired's configuration: `hotwired serve --config FILE`, or $HOTWIRED_CONFIG. Every setting is
# here, with its default. `hotwired config check FILE` says all that is wrong with a file, or what
# is in force with it. Flags win over environment variables, and those over the file.
"""
_CALLERS_HEAD = """\
# Who may call over TCP: a table each. The name is what audit records carry. Any other caller is
# refused, whoever signed its certificate. docs/security.md says what each role may do.
"""
_CALLER = Caller("operator", ("spiffe://example.org/ci", "ci.example.org"))


def sample() -> str:
    """Returns the file that has every setting at its default, with what it does."""
    parts = [_HEAD]
    config = Config()
    for name, section in SECTIONS.items():
        parts.append("\n".join(_sampled(name, section, getattr(config, name))))
    lines = [f"# {line}".rstrip() for line in _sampled("callers.ci", Caller, _CALLER)[1:]]
    parts.append(_CALLERS_HEAD + "#\n" + "\n".join(lines))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def in_force(found: InForce) -> str:
    """Returns what is in force: each setting, and where it came from."""
    parts = [
        _stated(name, section, getattr(found.config, name), found)
        for name, section in SECTIONS.items()
    ]
    parts += [
        _stated(f"callers.{name}", Caller, caller, found)
        for name, caller in found.config.callers.items()
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _sampled(name: str, section: type[Any], value: Any) -> list[str]:
    lines = [*_comment((section.__doc__ or "").partition("\n")[0]), f"[{name}]"]
    for found in fields(section):
        what = about(found.metadata)
        lines += _comment(f"{what.text} Allowed: {what.kind.allowed}.")
        lines.append(f"{found.name} = {what.kind.write(getattr(value, found.name))}")
    return lines


def _stated(name: str, section: type[Any], value: Any, found: InForce) -> Iterator[str]:
    yield f"[{name}]"
    for setting in fields(section):
        text = about(setting.metadata).kind.write(getattr(value, setting.name))
        origin = found.origins.get(f"{name}.{setting.name}", DEFAULT)
        yield f"{setting.name} = {text}  # {origin}"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")
