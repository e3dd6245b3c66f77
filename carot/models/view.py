"""One alignment, ready to be looked at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class AlignmentView:
    """Which English tokens moved onto which tokens of a prompt, at one layer.

    Parameters
    ----------
    prompt_tokens, english_tokens : list of str
        The m and n content tokens, as text.
    plan : Tensor
        Shape (m, n), the filtered transport plan.
    interpolation : Tensor
        Shape (m,), in [0, 1].
    layer : int
        The layer that they were aligned at.
    """

    prompt_tokens: list[str]
    english_tokens: list[str]
    plan: Tensor
    interpolation: Tensor
    layer: int

    def shares(self) -> Tensor:
        """Return the plan with each row scaled to sum 1 (or 0), shape (m, n): what is drawn."""
        mass = self.plan.sum(-1, keepdim=True)
        return self.plan / mass.masked_fill(mass == 0, 1)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists, for JSON."""
        return {
            "layer": self.layer,
            "prompt_tokens": self.prompt_tokens,
            "english_tokens": self.english_tokens,
            "plan": self.plan.tolist(),
            "interpolation": self.interpolation.tolist(),
        }

    def to_html(self) -> str:
        """Return a page with the heatmap that needs nothing from outside."""
        from carot.reporting.heatmap import heatmap_page

        return heatmap_page(self)

    def _repr_html_(self) -> str:
        """Show the heatmap in a notebook."""
        from carot.reporting.heatmap import heatmap_html

        return heatmap_html(self)

    def plot(self, path: str | Path) -> None:
        """Write the heatmap as an image; the suffix says the format (png, svg, pdf)."""
        from carot.reporting.heatmap import heatmap_image

        heatmap_image(self, Path(path))


def token_labels(tokenizer: Any, ids: Tensor) -> list[str]:
    """Tokens as readable text; a byte that is no character by itself shows its code."""
    labels = []
    for index in ids.tolist():
        text = tokenizer.decode([index])
        if "\N{REPLACEMENT CHARACTER}" in text:
            text = tokenizer.convert_ids_to_tokens(index)
        labels.append(text.strip() or repr(text)[1:-1])
    return labels
