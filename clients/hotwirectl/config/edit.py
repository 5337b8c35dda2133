"""Changes the configuration, and leaves what it does not change as it was, comments too."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit

from hotwirectl.config import file
from hotwirectl.config.model import Config, ConfigError, missing, parse

Edit = Callable[[tomlkit.TOMLDocument], tomlkit.TOMLDocument]


def set_context(name: str, values: Mapping[str, Any], cleared: Sequence[str] = ()) -> Config:
    """Sets keys of a context, which is made if there is none, and clears others.

    Returns the configuration as it is then.

    Raises:
        ConfigError: It could not be used afterwards, or cannot be read or written.
    """

    def edit(document: tomlkit.TOMLDocument) -> tomlkit.TOMLDocument:
        contexts = document.setdefault("contexts", tomlkit.table(is_super_table=True))
        table = contexts.setdefault(name, tomlkit.table())
        table.update(values)
        for key in cleared:
            table.pop(key, None)
        return document

    return _changed(edit)


def delete_context(name: str) -> Config:
    """Deletes a context; if it was the one in use, none is. Returns and raises as set_context."""

    def edit(document: tomlkit.TOMLDocument) -> tomlkit.TOMLDocument:
        del document["contexts"][name]
        if document.get("current") == name:
            del document["current"]
        return document

    file.load().context(name)
    return _changed(edit)


def use(name: str | None) -> Config:
    """Makes a context the one in use, or none. Returns and raises as set_context.

    What was in use before may be gone; this is the way to mend that.
    """

    def edit(document: tomlkit.TOMLDocument) -> tomlkit.TOMLDocument:
        known = document.get("contexts", {})
        if name is not None and name not in known:
            raise missing(name, known, file.place())
        if name is not None and "current" not in document:
            # A key of the top has to stand before all tables, and their comments.
            return tomlkit.parse(f'current = "{name}"\n\n{tomlkit.dumps(document)}')
        document.pop("current", None) if name is None else document.update(current=name)
        return document

    return _changed(edit)


def _changed(edit: Edit) -> Config:
    path = file.place()
    if path is None:
        raise ConfigError(f"there is no home to keep it in: set {file.CONFIG_ENV}")
    try:
        document = edit(tomlkit.parse(file.read(path) or ""))
    except (ValueError, TypeError, AttributeError) as error:  # tomlkit's own are of these
        raise ConfigError(f"{path} cannot be changed: {error}") from error
    config = parse(document.unwrap(), path)
    _write(tomlkit.dumps(document), path)
    return config


def _write(text: str, path: Path) -> None:
    """Puts the text in the place of the file, all of it or nothing; only its owner may read it."""
    target = path.resolve()  # a link, as those who keep such files elsewhere have, stays one
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(target, text.encode())
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


def _replace(target: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as new:
            new.write(data)
            new.flush()
            os.fsync(new.fileno())
        Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
