"""What a result was made with."""

from __future__ import annotations

from importlib.metadata import version


def package_versions() -> dict[str, str]:
    """Return the versions of carot and of the packages that its numbers depend on."""
    return {name: version(name) for name in ("carot", "torch", "transformers", "nnsight", "pot")}
