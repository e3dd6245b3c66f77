"""What an intervention is."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from carot.alignment import Alignment, LayerAligner


class Intervention(Protocol):
    """What is done to the target's states at one layer of the prefill.

    A pure function of states and masks. An attribute ``needs_source = False`` says that it does
    without English: then every row is steered, and no English pass is run.
    """

    def __call__(
        self,
        layer: LayerAligner,
        source: Tensor,
        target: Tensor,
        source_mask: Tensor,
        target_mask: Tensor,
    ) -> Alignment:
        """Return the new states of the target.

        Parameters
        ----------
        layer : LayerAligner
            What was fitted at this layer.
        source, target : Tensor
            Shapes (B, n, d) and (B, m, d); n is 0 where no source is needed.
        source_mask, target_mask : Tensor
            Boolean, shapes (B, n) and (B, m): content tokens.

        Returns
        -------
        Alignment
            States of the target in its own dtype; those outside ``target_mask`` are unchanged.
        """
        ...


def moved_everywhere(hidden: Tensor, target: Tensor, target_mask: Tensor, n: int) -> Alignment:
    """Return new states at all content tokens, as an alignment without a plan.

    Parameters
    ----------
    hidden : Tensor
        Shape (B, m, d), in any dtype.
    target : Tensor
        Shape (B, m, d), the states before.
    target_mask : Tensor
        Boolean, shape (B, m): where ``hidden`` is taken.
    n : int
        Source tokens.
    """
    new = hidden.to(target.dtype).where(target_mask.unsqueeze(-1), target)
    plan = hidden.new_zeros(*target_mask.shape, n)
    return Alignment(new, plan, target_mask.to(hidden.dtype))
