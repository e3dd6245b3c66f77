"""Log-probabilities of the reference: the model before training, computed once and kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from accelerate.utils import send_to_device

from carot.errors import CarotError
from carot.files import read_text, write_atomically
from carot.models.anatomy import Anatomy, has_new_adapter
from carot.progress import track
from carot.training.collate import Collator
from carot.training.data import EncodedInstruction
from carot.training.objectives.preferences import response_log_probs

SAMPLES = 32
"""Values of each parameter that tell two models apart."""


class Reference:
    """Sums of response log-probabilities by token ids, and the file that keeps them.

    Parameters
    ----------
    anatomy : Anatomy
        Of the model as it is before training: an adapter that is new changes nothing yet.
    path : path, optional
        JSON file. Values that are there are not computed again, by a resumed run or by another
        objective.

    Raises
    ------
    CarotError
        When the file is of another model.
    """

    def __init__(self, anatomy: Anatomy, path: str | Path | None = None) -> None:
        self.anatomy = anatomy
        self.path = None if path is None else Path(path)
        self.values: dict[str, float] = {}
        self.fingerprint = weights_fingerprint(anatomy.model)
        if self.path is not None and self.path.is_file():
            try:
                kept = json.loads(read_text(self.path))
                self.values = dict(kept["values"])
                fingerprint = kept["fingerprint"]
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                raise CarotError(
                    f"{self.path}: no reference log-probabilities in it; remove it"
                ) from error
            if fingerprint != self.fingerprint:
                raise CarotError(
                    f"{self.path} holds log-probabilities of another model ({fingerprint}, this is "
                    f"{self.fingerprint}); remove it, or name another folder"
                )

    def of(
        self,
        rows: Sequence[EncodedInstruction],
        collator: Collator,
        *,
        batch_size: int = 16,
        progress: bool = False,
    ) -> list[float]:
        """Return the sum for each row, in nats; computes those that are not there yet."""
        keys = [_key(row) for row in rows]
        missing = {key: row for key, row in zip(keys, rows, strict=True) if key not in self.values}
        # The same prompts together: they run once. Prompts of like length: little padding.
        waiting = sorted(missing.items(), key=lambda entry: (entry[1].response_start, entry[1].ids))
        if waiting:
            self._compute(waiting, collator, batch_size, progress)
            if self.path is not None:
                content = {"fingerprint": self.fingerprint, "values": self.values}
                write_atomically(self.path, json.dumps(content) + "\n")
        return [self.values[key] for key in keys]

    @torch.no_grad()
    def _compute(
        self,
        waiting: list[tuple[str, EncodedInstruction]],
        collator: Collator,
        batch_size: int,
        progress: bool,
    ) -> None:
        training = self.anatomy.model.training
        self.anatomy.model.eval()
        device = self.anatomy.input_device
        with track("reference", len(waiting), enabled=progress) as advance:
            for start in range(0, len(waiting), batch_size):
                part = waiting[start : start + batch_size]
                rows = [row for _, row in part]
                batch = {**collator.instructions(rows), "shared": collator.shared(rows)}
                sums = response_log_probs(self.anatomy, send_to_device(batch, device)).tolist()
                self.values |= dict(zip((key for key, _ in part), sums, strict=True))
                advance(len(part))
        self.anatomy.model.train(training)


def weights_fingerprint(model: torch.nn.Module) -> str:
    """Return a hash of some values of every parameter but those of an adapter that is new."""
    whole = hashlib.sha256()
    new = has_new_adapter(model)
    for name, parameter in model.named_parameters():
        if not (new and "lora_" in name):
            flat = parameter.detach().flatten()
            values = flat[:: max(1, flat.numel() // SAMPLES)].float().cpu()
            whole.update(values.numpy().tobytes())
    return whole.hexdigest()[:16]


def _key(row: EncodedInstruction) -> str:
    text = json.dumps([row.response_start, row.ids])
    return hashlib.sha256(text.encode()).hexdigest()[:24]
