"""The weights gamma of DCO: how far each language follows each other one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

from carot.errors import CarotError


def gamma_table(
    languages: Sequence[str],
    beta: float,
    gamma: Mapping[str, float],
    *,
    allow_inconsistent: bool = False,
) -> dict[tuple[str, str], float]:
    """Return gamma_ij for every ordered pair: what j's preference weighs in the term of i.

    ``gamma_ij gamma_ji = beta^2`` is sufficient for an optimum that agrees in both languages
    (arXiv 2603.04678, Lemma 1); a small gamma_ij keeps language i near the reference.

    Parameters
    ----------
    languages : sequence of str
        Those that are trained on.
    beta : float
        Of DCO.
    gamma : mapping of str to float
        Under ``"en-es"`` for English in the pair with Spanish, under ``"en"`` for English in all
        its pairs; beta where nothing is said.
    allow_inconsistent : bool
        Take a table that violates the constraint.

    Raises
    ------
    CarotError
        For a key that names no language or pair, a value that is not positive, or a pair that
        violates the constraint.

    Examples
    --------
    >>> gamma_table(["en", "es"], 1.0, {"en": 0.5, "es": 2.0})
    {('en', 'es'): 0.5, ('es', 'en'): 2.0}
    """
    pairs = [(i, j) for i in languages for j in languages if i != j]
    known = {*languages, *(f"{i}-{j}" for i, j in pairs)}
    for key, value in gamma.items():
        if key not in known:
            raise CarotError(
                f"gamma {key!r}: expected a language or an ordered pair of {', '.join(languages)}, "
                "as en or en-es"
            )
        if not value > 0:
            raise CarotError(f"gamma {key!r} is {value}; expected a number above 0")
    table = {(i, j): float(gamma.get(f"{i}-{j}", gamma.get(i, beta))) for i, j in pairs}
    for i, j in combinations(languages, 2):
        product = table[i, j] * table[j, i]
        if not allow_inconsistent and not math.isclose(product, beta**2, rel_tol=1e-6):
            raise CarotError(
                f"gamma {i}-{j} * gamma {j}-{i} is {product:g}; expected beta^2 = {beta**2:g}, or "
                "the two rankings need not agree: change one of them, or set allow_inconsistent"
            )
    return table


def gammas_of_weights(weights: Mapping[str, float], beta: float = 1.0) -> dict[str, float]:
    """Return a table that holds the constraint from one weight a language.

    ``gamma_ij = beta w_j / w_i``: a language of large weight is followed, and stays as it is.

    Examples
    --------
    >>> gammas_of_weights({"en": 2.0, "es": 1.0})
    {'en-es': 0.5, 'es-en': 2.0}
    """
    for language, weight in weights.items():
        if not weight > 0:
            raise CarotError(f"weight of {language!r} is {weight}; expected a number above 0")
    return {f"{i}-{j}": beta * weights[j] / weights[i] for i in weights for j in weights if i != j}
