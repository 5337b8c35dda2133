"""What every reader returns: a file's rows, what they are numbered, and why it may be refused."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hotwirectl import exit_codes, failures

#: The most that a file may have, and that its arrays may come to: what the daemon takes, too.
MAX_BYTES = 256 << 20

Rows = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class RawVector:
    """A vector as its file has it, before it is said which block each row is for.

    name: the file's stem. format: "safetensors", "torch", "gguf" or "npz". rows: (count, width)
    float32. numbers: the number that the file gives each row; None if they are only in order, and
    empty if there is one row for any layer. base: one of BASES, if the file or its format says what
    a number is. firm: whether it is the file itself that says so. dtype: what the values were
    stored in. assumed: in sentences, what was taken for granted.
    """

    name: str
    format: str
    rows: Rows
    numbers: tuple[int, ...] | None
    dtype: str
    base: str | None = None
    firm: bool = False
    metadata: dict[str, str] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()


def refused(
    path: Path | str, reason: str, why: str, *, hint: str = "", **metadata: object
) -> failures.CommandFailedError:
    """Returns the error for a file that is not taken; `why` goes on after its name."""
    return failures.CommandFailedError(
        failures.Failure(
            code="USAGE",
            reason=reason,
            message=f"{path}: {why}",
            exit_code=exit_codes.USAGE,
            hint=hint,
            metadata={"file": str(path)} | {key: str(value) for key, value in metadata.items()},
        )
    )


def damaged(path: Path, why: str) -> failures.CommandFailedError:
    """Returns the error for a file that is not whole, or not of its format."""
    return refused(path, "VECTOR_FORMAT_INVALID", why)


def too_large(path: Path, what: str, size: int) -> failures.CommandFailedError:
    """Returns the error for a file that has, or would unfold to, more than MAX_BYTES."""
    why = f"{what} {size} bytes; {MAX_BYTES} is the most"
    return refused(path, "VECTOR_TOO_LARGE", why, size_bytes=size, limit_bytes=MAX_BYTES)


def read_bytes(path: Path) -> bytes:
    """Returns what a file holds. Raises CommandFailedError if it is too large or unreadable."""
    try:
        if not path.is_file():
            raise refused(path, "VECTOR_FORMAT_INVALID", "is no regular file")
        if (size := path.stat().st_size) > MAX_BYTES:
            raise too_large(path, "has", size)
        with path.open("rb") as file:
            # No more, should it grow meanwhile.
            return file.read(size)
    except OSError as error:
        raise refused(path, "FILE_UNREADABLE", f"can't be read: {error.strerror}") from error


def float32(values: npt.NDArray[np.generic]) -> Rows:
    """Returns numbers as float32; what is too large for it becomes infinite."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def stacked(path: Path, rows: dict[int, Rows]) -> tuple[tuple[int, ...], Rows]:
    """Returns numbered rows in order, and their numbers. Raises if their widths differ."""
    widths = {row.shape for row in rows.values()}
    if len(widths) != 1:
        why = f"its layers have different widths: {sorted(shape[0] for shape in widths)}"
        raise refused(path, "VECTOR_SHAPE_MISMATCH", why)
    numbers = tuple(sorted(rows))
    return numbers, np.stack([rows[number] for number in numbers])
