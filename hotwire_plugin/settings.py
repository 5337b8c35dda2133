"""What the operator sets for the plugin, in the environment of vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hotwire_plugin.shape import DEFAULT_SITE, SITES

DEFAULT_BANK_MIB = 256
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """The plugin's settings.

    Attributes:
        bank_bytes: ``HOTWIRE_BANK_MIB``, the device memory for vector rows of programs in use.
        blob_bytes: ``HOTWIRE_BLOB_MIB``, the host memory for staged vectors, in each worker.
        sites: ``HOTWIRE_SITES``, where in each block the op is put, in the order of shape.SITES;
            "post" is always among them.
    """

    bank_bytes: int = DEFAULT_BANK_MIB * MIB
    blob_bytes: int = 4096 * MIB
    sites: tuple[str, ...] = (DEFAULT_SITE,)


def settings_from(environ: Mapping[str, str]) -> Settings:
    """Read the settings.

    Raises:
        ValueError: a size is not a whole number of MiB above zero, or a site is unknown.
    """
    default = Settings()
    return Settings(
        bank_bytes=_mebibytes(environ, "HOTWIRE_BANK_MIB", default.bank_bytes),
        blob_bytes=_mebibytes(environ, "HOTWIRE_BLOB_MIB", default.blob_bytes),
        sites=_sites(environ, "HOTWIRE_SITES"),
    )


def _mebibytes(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name)
    if text is None:
        return default
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"{name} must be a whole number of MiB above zero, not {text[:40]!r}")
    return int(text) * MIB


def _sites(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    asked = {site.strip() for site in environ.get(name, "").split(",")} - {""}
    if unknown := sorted(asked.difference(SITES)):
        raise ValueError(f"{name} knows {', '.join(SITES)}, not {unknown[0][:40]!r}")
    return tuple(site for site in SITES if site in asked or site == DEFAULT_SITE)
