"""Rows of a long run, kept as they come, so that an interrupted run can go on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from carot.errors import CarotError
from carot.files import require_file_or_nothing, write_atomically


class Journal:
    """An output file in the making: ``<output>.partial`` and the settings it was begun with.

    Parameters
    ----------
    output : path
        Where the result will be.
    settings : mapping
        What the rows depend on, as JSON; a partial file of other settings is refused.

    Raises
    ------
    CarotError
        When the partial file was begun with other settings; nothing is changed then.
    """

    def __init__(self, output: str | Path, settings: Mapping[str, Any]) -> None:
        self.output = Path(output)
        self.partial = self.output.with_name(self.output.name + ".partial")
        self._settings_file = self.output.with_name(self.output.name + ".journal")
        begun = json.loads(json.dumps(settings))
        self.rows: list[dict[str, Any]] = []
        require_file_or_nothing(self.output)
        if self._settings_file.is_file() and self.partial.is_file() and self.partial.stat().st_size:
            before = json.loads(self._settings_file.read_text("utf-8"))
            require_same(self.partial, before, begun)
            self.rows = self._whole_rows()
        else:
            write_atomically(self._settings_file, json.dumps(begun) + "\n")
            write_atomically(self.partial, "")

    def _whole_rows(self) -> list[dict[str, Any]]:
        """Read the rows that are there, cutting off half a row at the end."""
        content = self.partial.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            write_atomically(self.partial, whole)
        return [json.loads(line) for line in whole.decode("utf-8").split("\n") if line]

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows in one piece."""
        new = [dict(row) for row in rows]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in new)
        with self.partial.open("ab") as file:
            file.write(lines.encode("utf-8"))
        self.rows += new

    def finish(self, content: str | None = None) -> None:
        """Give the output its name: the rows themselves, or ``content`` made of them."""
        if content is None:
            self.partial.replace(self.output)
        else:
            write_atomically(self.output, content)
            self.partial.unlink()
        self._settings_file.unlink()


def require_same(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse, by name, settings other than those that ``path`` was begun with."""
    for key in dict.fromkeys((*now, *before)):
        if before.get(key) != now.get(key):
            old, new = (_short(values.get(key)) for values in (before, now))
            raise CarotError(
                f"{path} was begun with {key} {old}, and now it is {new}; use the same, or remove "
                "the file to begin anew"
            )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
