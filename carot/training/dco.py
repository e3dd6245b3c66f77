"""``carot.train_dco``: preferences that agree across languages, with the paper's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from carot.training.preferences import Item
from carot.training.recipe import Recipe
from carot.training.run import train

PUBLISHED: dict[str, Any] = {
    "objective": "dco",
    "lora": None,
    "schedule": {"kind": "sum", "fraction": 1.0, "epochs": 1.0},
    "training": {
        "learning_rate": 1e-5,
        "per_device_train_batch_size": 4,
        "warmup_steps": 0,
        "weight_decay": 0.0,
    },
}
"""Of the DCO paper (arXiv 2603.04678): all parameters, one epoch, batches of 4."""


def dco_recipe(
    languages: Sequence[str],
    *,
    recipe: Recipe | None = None,
    objective: str | None = None,
    data: str | None = None,
    beta: float | None = None,
    gamma: Mapping[str, float] | None = None,
    candidates: int | None = None,
    limit: int | None = None,
) -> Recipe:
    """Return a recipe, the paper's by default, with what is given in its place.

    Raises
    ------
    CarotError
        Naming the key whose value does not fit.
    """
    content = PUBLISHED if recipe is None else recipe.model_dump()
    given = {
        "beta": beta,
        "gamma": None if gamma is None else dict(gamma),
        "candidates": candidates,
        "limit": limit,
    }
    changes: dict[str, Any] = {
        "data": {"languages": list(languages)} | ({} if data is None else {"preferences": data}),
        "preferences": {key: value for key, value in given.items() if value is not None},
    }
    merged = content | {key: content.get(key, {}) | new for key, new in changes.items()}
    return Recipe.from_dict(merged | ({} if objective is None else {"objective": objective}))


def train_dco(
    model: Any,
    tokenizer: Any,
    output: str | Path,
    languages: Sequence[str],
    *,
    data: str | None = None,
    items: Mapping[str, Item] | None = None,
    objective: str | None = None,
    beta: float | None = None,
    gamma: Mapping[str, float] | None = None,
    candidates: int | None = None,
    limit: int | None = None,
    recipe: Recipe | None = None,
    **kwargs: Any,
) -> Any:
    """Train on preferences (``dco``, ``dpo``, ``calm``, ``sft_gold``, ``dco+dpo``).

    Parameters
    ----------
    model, tokenizer, output
        As for :func:`carot.train`.
    languages : sequence of str
        Languages of the questions.
    data : str, optional
        A file or ``task:NAME[:FOLDER]``, see :func:`carot.training.preferences.read_items`.
    items : mapping of str to Item, optional
        Instead of ``data``.
    objective : str, optional
        Instead of the recipe's; ``dco`` without one.
    beta : float, optional
        Of DCO.
    gamma : mapping of str to float, optional
        Of DCO, by language or ordered pair; see :func:`carot.training.gammas.gamma_table`, and
        :func:`carot.training.gammas.gammas_of_weights` for a table from one weight a language.
    candidates : int, optional
        Of DCO: drawn of each question, every two of them compared; two by default.
    limit : int, optional
        Questions of ``data`` that are trained on, the first of a task's draw.
    recipe : Recipe, optional
        Everything else; the paper's settings by default.
    **kwargs
        Of :func:`carot.train` (``callbacks``, ``resume``, ``aligner``, ``corpus``).

    Returns
    -------
    PeftModel or PreTrainedModel
        The trained model.
    """
    made = dco_recipe(
        languages,
        recipe=recipe,
        objective=objective,
        data=data,
        beta=beta,
        gamma=gamma,
        candidates=candidates,
        limit=limit,
    )
    return train(model, tokenizer, made, output, items=items, **kwargs)
