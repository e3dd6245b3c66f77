"""How well two sides match: whether an English text is a translation of the prompt at all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from carot.alignment.fit import sentence_vectors
from carot.alignment.layer import LayerAligner
from carot.errors import CarotError

LEAST_COSINE = 0.02
"""What a token without any counterpart counts as; the geometric mean is not 0 for its sake."""

LEAST_PAIRS = 50
"""True pairs of a language from which on it has a threshold of its own."""


def match_quality(
    fitted: LayerAligner,
    source: Tensor,
    target: Tensor,
    source_mask: Tensor,
    target_mask: Tensor,
) -> Tensor:
    """Return how well two sides match, in (0, 1].

    In the whitened language-agnostic space each token looks for the token of the other side that is
    nearest: ``a_i = max_j cos(x_i, y_j)`` over target tokens, ``b_j = max_i cos(x_i, y_j)`` over
    English ones, with ``x = (a_tgt - bias) W`` and ``y = (a_src - bias) W``. The match is their
    geometric mean, each side counting half, so that a word without a counterpart weighs more than
    another good pair::

        exp(mean_i log max(a_i, 0.02) / 2 + mean_j log max(b_j, 0.02) / 2)

    Parameters
    ----------
    fitted : LayerAligner
        Of the layer.
    source, target : Tensor
        Shapes (B, n, d) and (B, m, d), states before anything is moved.
    source_mask, target_mask : Tensor
        Boolean, shapes (B, n) and (B, m): content tokens.

    Returns
    -------
    Tensor
        Shape (B,), float32 (float64 for float64 states); 0 for a row in which one side has no
        content token.
    """
    dtype = torch.promote_types(target.dtype, torch.float32)
    fitted = fitted.to(target.device, dtype)
    source_mask, target_mask = source_mask.to(target.device), target_mask.to(target.device)
    if 0 in (source.shape[1], target.shape[1]):
        return torch.zeros(len(target), dtype=dtype, device=target.device)

    def directions(states: Tensor, mask: Tensor) -> Tensor:  # (B, tokens, r)
        states = states.to(target.device, dtype).masked_fill(~mask.unsqueeze(-1), 0)
        agnostic = fitted.subspace.agnostic(states) - fitted.subspace.bias
        return normalize(agnostic @ fitted.whitening, dim=-1)

    def mean_log(best: Tensor, mask: Tensor) -> Tensor:  # (B, tokens) -> (B,)
        logs = best.clamp_min(LEAST_COSINE).log().masked_fill(~mask, 0)
        return logs.sum(-1) / mask.sum(-1).clamp_min(1)

    cosine = directions(target, target_mask) @ directions(source, source_mask).mT  # (B, m, n)
    both = target_mask.unsqueeze(-1) & source_mask.unsqueeze(-2)
    cosine = cosine.masked_fill(~both, -1)
    halves = mean_log(cosine.amax(-1), target_mask) + mean_log(cosine.amax(-2), source_mask)
    match: Tensor = (halves / 2).exp().masked_fill(~both.any(-1).any(-1), 0)
    return match


def prompt_languages(fitted: LayerAligner, states: Tensor, mask: Tensor) -> Tensor:
    """Return the language that the states of each prompt are nearest to: (B,), rows of ``means``.

    Parameters
    ----------
    fitted : LayerAligner
        Of the layer.
    states, mask : Tensor
        Shapes (B, m, d) and (B, m), states before anything is moved, and content tokens.
    """
    fitted = fitted.to(states.device, torch.float32)
    return fitted.nearest_language(sentence_vectors(states, mask, torch.float32))


@dataclass(frozen=True)
class Guard:
    """The match below which an English text is taken for no translation of its prompt.

    Parameters
    ----------
    threshold : float
        Compared with :func:`match_quality`.
    languages : mapping of str to float
        Thresholds of languages that have one of their own.
    kept : float, optional
        Share of true translations at or above it, where it was calibrated.
    refused : float, optional
        Share of wrong ones below it.
    pairs : int
        True translations that it was calibrated on.
    """

    threshold: float
    languages: Mapping[str, float] = field(default_factory=dict)
    kept: float | None = None
    refused: float | None = None
    pairs: int = 0

    @property
    def is_on(self) -> bool:
        """Whether any match is refused."""
        return any(threshold > 0 for threshold in (self.threshold, *self.languages.values()))

    def __str__(self) -> str:
        thresholds = sorted(self.languages.values()) or [self.threshold]
        lowest, highest = f"{thresholds[0]:.3f}", f"{thresholds[-1]:.3f}"
        return lowest if lowest == highest else f"{lowest} to {highest}, by language"

    def of(self, language: str) -> float:
        """Return the threshold of a language."""
        return self.languages.get(language, self.threshold)

    @classmethod
    def calibrate(
        cls,
        true: Sequence[tuple[str, float]],
        wrong: Sequence[tuple[str, float]],
        keep: float = 0.95,
    ) -> Guard:
        """Choose the highest thresholds that keep the share ``keep`` of true translations.

        Parameters
        ----------
        true, wrong : sequence of (str, float)
            Language of the prompt, and match, of translations and of texts that are none. A
            language with :data:`LEAST_PAIRS` true ones or more has a threshold of its own.
        keep : float
            In (0, 1].

        Raises
        ------
        CarotError
            Without a true pair, or for another share.
        """
        if not 0 < keep <= 1:
            raise CarotError(f"keep is {keep}; expected a share above 0, up to 1")
        if not true:
            raise CarotError("no pair of prompt and English to calibrate on; expected one at least")
        by_language: dict[str, list[float]] = {}
        for language, match in true:
            by_language.setdefault(language, []).append(match)
        guard = cls(
            _lowest([match for _, match in true], keep),
            {
                language: _lowest(matches, keep)
                for language, matches in sorted(by_language.items())
                if len(matches) >= LEAST_PAIRS
            },
        )
        passed, stopped = (
            [match >= guard.of(language) for language, match in pairs] for pairs in (true, wrong)
        )
        return replace(
            guard,
            kept=sum(passed) / len(passed),
            refused=1 - sum(stopped) / len(stopped) if stopped else 0.0,
            pairs=len(true),
        )


def _lowest(matches: list[float], keep: float) -> float:
    """Return the match that the share ``keep`` of all, or more, reach."""
    return sorted(matches)[math.floor((1 - keep) * (len(matches) - 1) + 1e-9)]
