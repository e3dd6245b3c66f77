"""Any program that reads lines and writes their English."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from carot.errors import CarotError
from carot.pivots.base import one_line, quoted

LANGUAGE = "{language}"


class Command:
    """A program that translates line by line: standard input to standard output.

    Parameters
    ----------
    command : str
        The program and its arguments, as in ``"apertium spa-eng"``. No shell reads it.
        ``{language}`` in an argument stands for the language code of the prompts.

    Raises
    ------
    CarotError
        When it is empty, a quote in it is not closed, or there is no such program.
    """

    def __init__(self, command: str) -> None:
        try:
            self.arguments = shlex.split(command)
        except ValueError as error:
            raise CarotError(f"command {command!r}: {error}; expected a program") from error
        if not self.arguments:
            raise CarotError("the command is empty; expected a program such as 'apertium spa-eng'")
        program = self.arguments[0]
        if LANGUAGE not in program and shutil.which(program) is None:
            raise CarotError(f"{program}: no such program; install it, or name it with its folder")
        self.command = command
        self.name = f"command:{command}"

    def describe(self) -> dict[str, Any]:
        """Return the command; what the program depends on is not known here."""
        return {"pivot": "command", "command": self.arguments}

    def translate(
        self, prompts: Sequence[str], languages: Sequence[str | None]
    ) -> list[str | None]:
        """Run the program, once for each language where it is told the language.

        Raises
        ------
        CarotError
            When the program is missing or fails, or writes another number of lines.
        """
        texts = [one_line(prompt) for prompt in prompts]
        runs: dict[str, list[int]] = {}
        for row, (text, language) in enumerate(zip(texts, languages, strict=True)):
            if text:
                runs.setdefault(self._told(text, language), []).append(row)
        english: list[str | None] = [None] * len(prompts)
        for language, rows in runs.items():
            lines = self._run(language, [texts[row] for row in rows])
            for row, line in zip(rows, lines, strict=True):
                english[row] = line.strip() or None
        return english

    def _told(self, text: str, language: str | None) -> str:
        """Return what stands for the language; nothing where the command does not ask for it."""
        if not any(LANGUAGE in argument for argument in self.arguments):
            return ""
        if language is None:
            raise CarotError(
                f"{quoted(text)}: its language is not known, and {self.command!r} asks for it; "
                "name the language"
            )
        return language

    def _run(self, language: str, lines: Sequence[str]) -> list[str]:
        arguments = [argument.replace(LANGUAGE, language) for argument in self.arguments]
        shown = shlex.join(arguments)
        try:
            done = subprocess.run(
                arguments,
                input="".join(f"{line}\n" for line in lines).encode(),
                capture_output=True,
            )
            # Not str.splitlines: it also cuts at characters that stand inside sentences.
            written = done.stdout.decode().removesuffix("\n").split("\n") if done.stdout else []
        except OSError as error:
            raise CarotError(
                f"{shown}: cannot be run ({error.strerror}); install {arguments[0]}, or name it "
                "with its folder"
            ) from error
        except UnicodeDecodeError as error:
            raise CarotError(f"{shown}: its output is not UTF-8 (byte {error.start})") from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().partition("\n")[0] or "no message"
            raise CarotError(f"{shown}: ended with code {done.returncode} ({said.strip()})")
        if len(written) != len(lines):
            raise CarotError(
                f"{shown}: wrote {len(written)} lines for {len(lines)} prompts; expected one each"
            )
        return written
