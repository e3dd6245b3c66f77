"""One trainer for all objectives: transformers' own, with a plan of steps and our losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from transformers import Trainer

from carot.alignment import Aligner
from carot.errors import CarotError
from carot.files import write_atomically
from carot.models.anatomy import Anatomy
from carot.training.objectives import Carot, Objective, count
from carot.training.plan import StepPlan
from carot.training.recipe import Recipe
from carot.training.refit import Refit

ALIGNER_FOLDER = "aligner"
RECIPE_FILE = "recipe.yaml"


class CarotTrainer(Trainer):
    """A ``transformers.Trainer`` whose batches hold several kinds of data.

    Checkpoints, logging, accelerate, FSDP, DeepSpeed, gradient accumulation and callbacks are
    those of the Trainer. Each micro-batch is a dictionary by kind of data; each objective has its
    part of it. A step's loss is the mean over all response tokens (or pairs) of its micro-batches
    and processes, so that it does not depend on how they are split.

    Parameters
    ----------
    objectives : sequence of (Objective, float)
        With their weights.
    anatomy : Anatomy
        Of the model.
    plan : StepPlan
        Rows of every step.
    recipe : Recipe
        Written beside each checkpoint.
    refit : Refit, optional
        Fits the aligner again on the way.
    **kwargs
        Of ``transformers.Trainer``.
    """

    def __init__(
        self,
        *,
        objectives: Sequence[tuple[Objective, float]],
        anatomy: Anatomy,
        plan: StepPlan,
        recipe: Recipe,
        refit: Refit | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.objectives = list(objectives)
        self.anatomy = anatomy
        self.plan = plan
        self.recipe = recipe
        self.loss_is_scaled_for_ga = True  # compute_loss divides by the counts of the whole step
        self.refit = refit
        if refit is not None:
            self.add_callback(refit)
        self._sums: dict[str, Tensor] = {}

    @property
    def aligner(self) -> Aligner | None:
        """The aligner that the objective ``carot`` uses, as it now is."""
        for objective, _ in self.objectives:
            if isinstance(objective, Carot):
                return objective.aligner
        return None

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return batches in the order of the plan, shared among processes."""
        loader: DataLoader[Any] = DataLoader(
            self.train_dataset,  # type: ignore[arg-type]
            batch_sampler=self.plan,  # type: ignore[arg-type]
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
        )
        prepared: DataLoader[Any] = self.accelerator.prepare(loader)
        return prepared

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Any]:
        """Take the micro-batches of one step, and count what their losses are means over."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        kinds = sorted({kind for batch in batches for kind in batch})
        totals = torch.tensor(
            [sum(count(kind, batch[kind]) for batch in batches if kind in batch) for kind in kinds],  # type: ignore[arg-type]
            device=device,
        )
        if self.args.world_size > 1:
            totals = self.accelerator.reduce(totals)
        return batches, dict(zip(kinds, totals.tolist(), strict=True))

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return this micro-batch's part of the step's loss, times the number of processes."""
        totals: Mapping[str, int] = num_items_in_batch or {}
        processes = self.args.world_size if totals else 1
        losses: dict[str, Tensor] = {}

        def whole() -> Tensor:
            parts = []
            for objective, weight in self.objectives:
                if objective.kind in inputs:
                    batch = inputs[objective.kind]
                    here = count(objective.kind, batch)
                    share = processes * here / totals.get(objective.kind, here)
                    loss = share * objective.loss(self.anatomy, batch)
                    losses[objective.name] = loss.detach()
                    parts.append(weight * loss)
            return torch.stack([part.to(parts[0].device) for part in parts]).sum()

        loss = run_as_forward(model, whole)
        for name, value in losses.items():
            if not bool(value.isfinite()):
                raise CarotError(
                    f"step {self.state.global_step + 1}: the loss of {name} is {float(value)}; "
                    "train in float32 or bfloat16, with a lower learning rate or another attn "
                    "implementation"
                )
            if model.training:
                self._sums.setdefault(name, torch.zeros(2, device=value.device))
                self._sums[name] += torch.stack([value, torch.ones_like(value)])
        return (loss, {}) if return_outputs else loss

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the loss on held-out rows; nothing else is kept."""
        with torch.no_grad():
            loss = self.compute_loss(model, self._prepare_inputs(inputs))
        return loss, None, None

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add each objective's own mean loss since the last log."""
        if "loss" in logs:
            for name, sums in sorted(self._sums.items()):
                total = self.accelerator.reduce(sums) if self.args.world_size > 1 else sums
                steps = total[1] / self.args.world_size / self.args.gradient_accumulation_steps
                logs[f"loss_{name}"] = float(total[0] / self.args.world_size / steps)
            self._sums = {}
            if self.refit is not None:
                logs |= self.refit.take_measured()
        super().log(logs, start_time)

    def _save(
        self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None
    ) -> None:
        super()._save(output_dir, state_dict)
        if not self.args.should_save:
            return
        folder = Path(output_dir or self.args.output_dir or ".")
        write_atomically(folder / RECIPE_FILE, self.recipe.to_yaml())
        if self.aligner is not None:
            self.aligner.save_pretrained(folder / ALIGNER_FOLDER)


def run_as_forward(model: nn.Module, call: Callable[[], Tensor]) -> Tensor:
    """Run ``call``, which calls the model inside, as one forward pass of ``model``.

    DistributedDataParallel looks for parameters that take no part by walking back from what its
    forward returns. A loss of layer states, or of two passes, is made behind the inner model's
    forward: so the whole computation of the loss is what it has to run.
    """
    if not isinstance(model, DistributedDataParallel):
        return call()
    inner = model.module
    model.module = _Call(inner, call)
    try:
        loss: Tensor = model()
    finally:
        model.module = inner
    return loss


class _Call(nn.Module):
    def __init__(self, inner: nn.Module, call: Callable[[], Tensor]) -> None:
        super().__init__()
        self.inner = inner  # DistributedDataParallel looks for buffers here
        self.call = call

    def forward(self) -> Tensor:
        return self.call()
