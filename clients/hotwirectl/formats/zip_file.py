"""Opens zip files that anyone may have made: what they would unfold to is known beforehand."""

import io
import zipfile
from pathlib import Path

from hotwirectl.formats.raw import MAX_BYTES, damaged, too_large

MAX_MEMBERS = 8192
_ENTRY = b"PK\x01\x02"


def opened(path: Path, data: bytes) -> zipfile.ZipFile:
    """Returns the archive in a file's bytes, to be closed by the caller.

    Raises CommandFailedError if it is none, has too many members, or its members declare more than
    MAX_BYTES together. No member yields more than it declares.
    """
    # The library reads the whole directory at once, so it is bounded before it is read.
    if data.count(_ENTRY) > MAX_MEMBERS:
        raise damaged(path, f"it has more than {MAX_MEMBERS} members")
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise damaged(path, f"it is no whole zip file: {error}") from error
    total = sum(member.file_size for member in archive.infolist())
    if total > MAX_BYTES:
        archive.close()
        raise too_large(path, "its members unfold to", total)
    return archive
