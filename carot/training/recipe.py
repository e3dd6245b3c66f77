"""Recipes: everything that a training run depends on beside model and data, typed."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)

from carot.errors import CarotError
from carot.files import read_text


class Section(BaseModel):
    """A part of a recipe; a key that it does not know is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Data(Section):
    """What is trained on.

    Parameters
    ----------
    instructions : str, optional
        JSONL of ``prompt``, ``response``, ``language`` (and ``id``, the same for translations of
        one item), or of ``messages``; or a hub data set.
    preferences : str, optional
        Questions in several languages, as :func:`carot.training.preferences.read_items` takes them.
    parallel : str, optional
        A corpus as ``carot fit --corpus`` takes it: ``bundled``, ``ntrex:FOLDER``, ...
    languages : list of str, optional
        Languages of the corpus; all by default. English is the source.
    limit : int, optional
        Sentences of the corpus.
    held_out : int
        Sentences at the end of the corpus that are kept for refitting and never trained on.
    max_length : int
        Tokens of a prompt with its response, and of a sentence.
    separator : str, optional
        Between prompt and response; by default a space, or nothing where the prompt ends in white
        space or in a script that is written without spaces.
    end : bool
        Train the model to end its response (one EOS).
    """

    instructions: str | None = None
    preferences: str | None = None
    parallel: str | None = None
    languages: list[str] | None = None
    limit: PositiveInt | None = None
    held_out: NonNegativeInt = 128
    max_length: Annotated[int, Field(ge=2)] = 256
    separator: str | None = None
    end: bool = True


class Align(Section):
    """The CAROT objective (arXiv 2609.06381, Eq. 9).

    Parameters
    ----------
    layers : list of int, optional
        Where states are aligned; the aligner's default by default.
    theta, epsilon, rho : float
        Of the transport.
    teacher : {"current", "frozen"}
        Whose English states are the source: the model's as it is, or as it was before training.
    refit_every : int
        Steps after which eraser and whitening are fitted again on the held-out sentences; 0 keeps
        them, as the paper does.
    """

    layers: list[int] | None = None
    theta: Annotated[float, Field(gt=0, le=1)] = 0.5
    epsilon: PositiveFloat = 0.05
    rho: PositiveFloat = 0.5
    teacher: Literal["current", "frozen"] = "current"
    refit_every: NonNegativeInt = 0


class MidAlignSettings(Section):
    """The MidAlign objective (arXiv 2502.14830).

    Parameters
    ----------
    layer : int, optional
        The middle one by default.
    temperature : float
        Divides the cosines.
    symmetric : bool
        Find the source of each target too, not only the target of each source.
    """

    layer: int | None = None
    temperature: PositiveFloat = 0.1
    symmetric: bool = True


class SolarSettings(Section):
    """The SOLAR objective (arXiv 2606.26466).

    Parameters
    ----------
    top_k : int
        Tokens that make a soft token.
    temperature : float
        Of their probabilities.
    strength : float
        Lambda, of the cosine term.
    """

    top_k: PositiveInt = 30
    temperature: PositiveFloat = 1.0
    strength: NonNegativeFloat = 0.5


class Preferences(Section):
    """The objectives DCO (arXiv 2603.04678), DPO and CALM.

    Parameters
    ----------
    beta : float
        Of DCO.
    gamma : dict of str to float
        Of DCO, by language or ordered pair, see :func:`carot.training.gammas.gamma_table`.
    allow_inconsistent : bool
        Take gammas under which two rankings need not agree.
    limit : int, optional
        Questions, the first of a task's draw; the others can be asked with ``--skip``.
    pairs : {"drawn", "all"}
        Two languages drawn for each question, or all pairs of languages.
    candidates : int
        Of DCO: drawn of each question, every two of them compared; the paper draws two.
    form : {"absolute", "squared"}
        Of DCO's terms.
    reduction : {"sum", "mean"}
        Over the tokens of a response.
    dpo_beta : float
        Of DPO and CALM.
    """

    beta: PositiveFloat = 1.0
    gamma: dict[str, float] = {}
    allow_inconsistent: bool = False
    limit: PositiveInt | None = None
    pairs: Literal["drawn", "all"] = "drawn"
    candidates: Annotated[int, Field(ge=2)] = 2
    form: Literal["absolute", "squared"] = "absolute"
    reduction: Literal["sum", "mean"] = "sum"
    dpo_beta: PositiveFloat = 0.1


class Schedule(Section):
    """Which loss a step has.

    Parameters
    ----------
    kind : {"alternate", "sum"}
        An alignment step after each language-model step, or one step on the sum of the losses.
    fraction : float
        The first part of the language-model steps, in which alignment takes part.
    steps : int, optional
        Language-model steps; from ``epochs`` where left out.
    epochs : float
        Passes over the instruction data.
    weights : dict of str to float
        Of objectives; 1 by default.
    """

    kind: Literal["alternate", "sum"] = "alternate"
    fraction: Annotated[float, Field(ge=0, le=1)] = 0.5
    steps: PositiveInt | None = None
    epochs: PositiveFloat = 1.0
    weights: dict[str, float] = {}


class Lora(Section):
    """A LoRA adapter (PEFT); the paper's values."""

    r: PositiveInt = 64
    alpha: PositiveInt = 64
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.05
    target_modules: str | list[str] = "all-linear"


class Recipe(Section):
    """A training run.

    Parameters
    ----------
    objective : str
        ``sft``, ``carot``, ``midalign``, ``solar``, ``dco``, ``dpo``, ``calm``, ``sft_gold``, or
        several joined by ``+``. ``carot`` and ``midalign`` go with ``sft``, unless another one that
        is not on parallel sentences is named.
    data, align, midalign, solar, preferences, schedule
        Its sections.
    lora : Lora, optional
        None (``null``) trains all parameters.
    freeze_embeddings : bool
        Without LoRA: leave input and output embeddings as they are. They are most of a small
        model's parameters, and an aligner knows a model by them.
    training : dict
        Any of ``transformers.TrainingArguments``; beside the paper's own values (AdamW, weight
        decay .01, linear schedule, 300 warm-up steps, batch 16, clipping at 1).
    """

    objective: str = "carot"
    data: Data = Data()
    align: Align = Align()
    midalign: MidAlignSettings = MidAlignSettings()
    solar: SolarSettings = SolarSettings()
    preferences: Preferences = Preferences()
    schedule: Schedule = Schedule()
    lora: Lora | None = Lora()
    freeze_embeddings: bool = False
    training: dict[str, Any] = {}

    @classmethod
    def from_yaml(cls, path: str | Path) -> Recipe:
        """Read a recipe.

        Raises
        ------
        CarotError
            Naming the key that is not known or whose value does not fit.
        """
        path = Path(path)
        try:
            content = yaml.safe_load(read_text(path))
        except yaml.YAMLError as error:
            reason = " ".join(str(error).split())
            raise CarotError(f"{path}: not valid YAML ({reason})") from error
        return cls.from_dict({} if content is None else content, str(path))

    @classmethod
    def from_dict(cls, content: Any, where: str = "recipe") -> Recipe:
        """Make a recipe of plain data; ``where`` stands before messages."""
        if not isinstance(content, dict):
            raise CarotError(f"{where}: expected a mapping of keys, got {content!r:.40}")
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise CarotError(f"{where}: {_first_line(error)}") from error

    def to_yaml(self) -> str:
        """Return the whole recipe, defaults written out."""
        text: str = yaml.safe_dump(
            self.model_dump(mode="json"), sort_keys=False, allow_unicode=True
        )
        return text


def _first_line(error: ValidationError) -> str:
    first = error.errors()[0]
    *parents, name = [part for part in first["loc"] if isinstance(part, str)] or [""]
    key = ".".join((*parents, name))
    if first["type"] != "extra_forbidden":
        return f"{key} is {first['input']!r:.60}; {first['msg'][0].lower()}{first['msg'][1:]}"
    section: Any = Recipe
    for parent in parents:
        section = type(getattr(Recipe(), parent))
    return f"no key {key!r}{nearest(name, list(section.model_fields))}"


def nearest(name: str, known: list[str]) -> str:
    """Say which known name an unknown one may have meant, or which there are."""
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; expected one of {', '.join(known)}"
