"""Reading text with a clear error, and writing so that a reader never meets half a file."""

from __future__ import annotations

import os
from pathlib import Path

from carot.errors import CarotError


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write beside the file, then rename over it; text is UTF-8."""
    require_file_or_nothing(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def require_folder_or_nothing(path: Path) -> None:
    """Refuse a file where a folder will be written."""
    if path.exists() and not path.is_dir():
        raise CarotError(f"{path} is a file; expected a folder, or a name that is free")


def require_file_or_nothing(path: Path) -> None:
    """Refuse a folder where a file will be written."""
    if path.is_dir():
        raise CarotError(f"{path} is a folder; expected the name of a file")


def read_text(path: Path) -> str:
    """Read a UTF-8 file, line ends as they are; an error says what is wrong with it."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError as error:
        raise CarotError(f"{path}: no such file") from error
    except OSError as error:
        raise CarotError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise CarotError(f"{path}: not UTF-8 (byte {error.start}); convert it") from error
