"""``carot.train``: from a model and a recipe to a trained model in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from transformers import TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from carot.alignment import Aligner
from carot.corpora import ParallelCorpus
from carot.errors import CarotError
from carot.files import require_folder_or_nothing, write_atomically
from carot.models import fit_aligner
from carot.models.anatomy import dissect
from carot.training.collate import Collator
from carot.training.data import Instruction
from carot.training.objectives import KINDS, Carot, Kind, make_objectives, objective_names
from carot.training.plan import Mixture, StepPlan, step_kinds
from carot.training.preferences import Item
from carot.training.prepare import (
    comparison_data,
    comparisons,
    encoded_instructions,
    gold_instructions,
    instruction_data,
    parallel_data,
    preference_items,
)
from carot.training.recipe import Recipe, nearest
from carot.training.refit import Refit
from carot.training.trainer import ALIGNER_FOLDER, RECIPE_FILE, CarotTrainer

DEFAULTS: dict[str, Any] = {
    "per_device_train_batch_size": 16,
    "learning_rate": 1e-4,
    "weight_decay": 0.01,
    "lr_scheduler_type": "linear",
    "warmup_steps": 300,
    "max_grad_norm": 1.0,
    "logging_steps": 10,
    "save_total_limit": 2,
    "report_to": "none",
}
"""Of ``TrainingArguments``: the CAROT paper's, where it says."""

OURS = ("output_dir", "max_steps", "num_train_epochs", "remove_unused_columns")
"""Of ``TrainingArguments``: set by the plan of steps."""


def train(
    model: Any,
    tokenizer: Any,
    recipe: Recipe,
    output: str | Path,
    *,
    aligner: Aligner | None = None,
    instructions: Sequence[Instruction] | None = None,
    corpus: ParallelCorpus | None = None,
    items: Mapping[str, Item] | None = None,
    eval_instructions: Sequence[Instruction] | None = None,
    callbacks: Sequence[Any] = (),
    resume: bool = False,
) -> Any:
    """Train a model as a recipe says.

    Parameters
    ----------
    model, tokenizer
        A decoder-only Hugging Face model and its tokenizer. With ``recipe.lora`` it gets an
        adapter; one that it has already is trained on. Without, its own weights are trained.
    recipe : Recipe
        Objective, data, schedule.
    output : path
        Folder of checkpoints, and at last of the adapter (or weights), tokenizer, recipe and
        aligner.
    aligner : Aligner, optional
        For the objective ``carot``; fitted on the parallel corpus where left out.
    instructions : sequence of Instruction, optional
        Instead of ``recipe.data.instructions``.
    corpus : ParallelCorpus, optional
        Instead of ``recipe.data.parallel``.
    items : mapping of str to Item, optional
        Instead of ``recipe.data.preferences``: questions in several languages, by id.
    eval_instructions : sequence of Instruction, optional
        Held-out rows; their loss is logged as ``recipe.training`` says (``eval_strategy``, ...).
    callbacks : sequence of TrainerCallback
        More callbacks (early stopping, ...).
    resume : bool
        Go on from the last checkpoint in ``output``, where there is one.

    Returns
    -------
    PeftModel or PreTrainedModel
        The trained model, in evaluation mode.

    Raises
    ------
    CarotError
        For a recipe that does not fit the data or the model, a folder that holds another run, or a
        loss that is not finite.
    """
    output = Path(output)
    names = objective_names(recipe)
    arguments = _arguments(recipe, output)
    checkpoint = _checkpoint(output, recipe, resume)
    set_seed(arguments.seed)
    kinds = list(dict.fromkeys(KINDS[name] for name in names))
    data: dict[str, Any] = {}
    held_out = None
    if "sft_gold" in names and instructions is None:
        instructions = gold_instructions(preference_items(recipe, items))
    if "instructions" in kinds:
        data["instructions"] = instruction_data(recipe.data, instructions, tokenizer)
    if "parallel" in kinds:
        held_out, data["parallel"] = parallel_data(recipe, corpus)
    if checkpoint is not None and (folder := Path(checkpoint) / ALIGNER_FOLDER).is_dir():
        aligner = Aligner.from_pretrained(folder)
    elif aligner is None and "carot" in names:
        aligner = fit_aligner(
            model, tokenizer, data["parallel"].corpus, recipe.align.layers, progress=True
        )
    model = _with_adapter(model, recipe)
    anatomy = dissect(model)
    objectives = make_objectives(recipe, anatomy, aligner)
    collator = Collator(tokenizer, recipe.data.max_length)
    for name in names:
        if KINDS[name] in ("pairs", "preferences"):
            asked = preference_items(recipe, items)
            rows = comparisons(name, recipe, asked, anatomy, tokenizer, arguments.seed)
            size = arguments.per_device_eval_batch_size
            data[KINDS[name]] = comparison_data(
                recipe, rows, tokenizer, anatomy, collator, output, size
            )
    plan = _plan(recipe, arguments, data, kinds, grouped="solar" in names)
    arguments.max_steps = len(plan.kinds)
    evaluated = None
    if eval_instructions is not None:
        evaluated = _Held(encoded_instructions(recipe.data, eval_instructions, tokenizer))
    trainer = CarotTrainer(
        objectives=objectives,
        anatomy=anatomy,
        plan=plan,
        recipe=recipe,
        model=model,
        args=arguments,
        train_dataset=Mixture(data),
        eval_dataset=evaluated,
        data_collator=collator,
        processing_class=tokenizer,
        callbacks=list(callbacks),
        refit=_refit(recipe, objectives, anatomy, tokenizer, held_out),
    )
    if arguments.should_save:
        write_atomically(output / RECIPE_FILE, recipe.to_yaml())
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model()
    trainer.save_state()
    return model.eval()


def _arguments(recipe: Recipe, output: Path) -> TrainingArguments:
    known = {field.name for field in fields(TrainingArguments)}
    for name in recipe.training:
        if name in OURS:
            raise CarotError(f"training.{name} is set by the schedule and the output folder")
        if name not in known:
            raise CarotError(f"no key 'training.{name}'{nearest(name, sorted(known))}")
    given = DEFAULTS | recipe.training
    # Alignment steps leave the upper layers out.
    given.setdefault("ddp_find_unused_parameters", True)
    try:
        arguments = TrainingArguments(str(output), remove_unused_columns=False, **given)
    except (ValueError, TypeError) as error:
        raise CarotError(f"training: {' '.join(str(error).split())}") from error
    # One process with several GPUs would be given DataParallel, which copies no hooks.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments


def _checkpoint(output: Path, recipe: Recipe, resume: bool) -> Any:
    """Find the checkpoint to go on from; refuse the folder of another run."""
    require_folder_or_nothing(output)
    last = get_last_checkpoint(str(output)) if output.is_dir() else None  # type: ignore[no-untyped-call]
    if last is None:
        return None
    if not resume:
        raise CarotError(
            f"{output} holds checkpoints of a run; go on with resume, or name another folder"
        )
    before, now = (
        _flat(made.model_dump(mode="json"))
        for made in (Recipe.from_yaml(output / RECIPE_FILE), recipe)
    )
    for key in {**now, **before}:
        if before.get(key) != now.get(key):
            raise CarotError(
                f"{output} was begun with {key} {before.get(key)!r}, and now it is "
                f"{now.get(key)!r}; use the same recipe, or name another folder"
            )
    return last


def _flat(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested keys as ``align.layers``."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _with_adapter(model: Any, recipe: Recipe) -> Any:
    if hasattr(model, "peft_config"):
        model.set_adapter(model.active_adapter)  # loaded for inference, it would not be trained
        return model
    if recipe.lora is None:
        if recipe.freeze_embeddings:
            for module in (model.get_input_embeddings(), model.get_output_embeddings()):
                module.requires_grad_(False)
        return model
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise CarotError(
            "LoRA needs the package peft; install it with pip install 'carot[train]', or train all "
            "parameters with lora: null"
        ) from error
    lora = recipe.lora
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.target_modules,
    )
    return get_peft_model(model, config)


def _plan(
    recipe: Recipe,
    arguments: TrainingArguments,
    data: dict[str, Any],
    kinds: list[Kind],
    *,
    grouped: bool,
) -> StepPlan:
    size, seed = arguments.per_device_train_batch_size, arguments.data_seed or arguments.seed
    per_step = arguments.gradient_accumulation_steps * arguments.world_size
    schedule = recipe.schedule
    steps = schedule.steps or ceil(schedule.epochs * len(data[kinds[0]]) / (size * per_step))
    streams = {kind: rows.batches for kind, rows in data.items()}
    if grouped:
        streams["instructions"] = data["instructions"].batches_of_items
    begin = {kind: partial(stream, size, seed) for kind, stream in streams.items()}
    alternate = schedule.kind == "alternate"
    return StepPlan(
        step_kinds(steps, kinds, schedule.fraction, alternate=alternate), begin, per_step
    )


def _refit(
    recipe: Recipe, objectives: Any, anatomy: Any, tokenizer: Any, held_out: ParallelCorpus | None
) -> Refit | None:
    every = recipe.align.refit_every
    for objective, _ in objectives:
        if isinstance(objective, Carot) and held_out is not None:
            return Refit(objective, anatomy, tokenizer, held_out, every, recipe.data.max_length)
    return None


class _Held:
    """Held-out instructions as rows of the collator."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[str, Any]:
        return "instructions", self.rows[index]
