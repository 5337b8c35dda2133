"""Where the configuration is, and reading it."""

import os
from pathlib import Path
from typing import Any

from hotwirectl.config.model import Config, ConfigError, Context, parse

CONFIG_ENV = "HOTWIRE_CONFIG"


def place() -> Path | None:
    """Returns $HOTWIRE_CONFIG, else hotwire/config.toml in $XDG_CONFIG_HOME, else in ~/.config.

    None if it would be in a home and there is no home.
    """
    if own := os.environ.get(CONFIG_ENV):
        return Path(own).absolute()
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if not base.startswith("/"):  # by the XDG specification, a relative one counts as unset
        base = os.path.expanduser("~/.config")  # noqa: PTH111 - that of Path raises without a home
    return Path(base) / "hotwire" / "config.toml" if base.startswith("/") else None


def load() -> Config:
    """Returns the configuration; without a file, one that says nothing.

    Raises:
        ConfigError: The file cannot be read, or says what is not allowed.
    """
    path = place()
    text = None if path is None else read(path)
    return Config(path) if path is None or text is None else parse(_toml(text, path), path)


def in_force(name: str | None) -> Context:
    """Returns the context of that name, else the one in use, else one that says nothing.

    Raises:
        ConfigError: As for load, or there is no such context.
    """
    config = load()
    wanted = name or config.current
    return config.context(wanted) if wanted else Context()


def read(path: Path) -> str | None:
    """Returns the file's text, or None if there is no file.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is no TOML: it is not UTF-8") from error


def _toml(text: str, path: Path) -> dict[str, Any]:
    import tomllib  # most have no configuration, and no command waits for what it does not need

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is no TOML: {error}") from error
