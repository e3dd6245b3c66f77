"""CAROT: transport the English language-agnostic states onto the target's tokens."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from torch import Tensor

from carot.alignment import Alignment, LanguageSubspace, LayerAligner, TransportSettings


@dataclass(frozen=True)
class Carot(TransportSettings):
    """The paper's intervention (arXiv 2609.06381); its settings are those of the transport."""

    def __call__(
        self,
        layer: LayerAligner,
        source: Tensor,
        target: Tensor,
        source_mask: Tensor,
        target_mask: Tensor,
    ) -> Alignment:
        """See :meth:`carot.alignment.LayerAligner.align`."""
        settings = asdict(self)
        return layer.align(
            source,
            target,
            source_mask=source_mask,
            target_mask=target_mask,
            backend=settings.pop("solver"),
            **settings,
        )


@dataclass(frozen=True)
class CarotWithoutErasure(Carot):
    """The paper's ablation without LEACE: whole states are moved, S = 0."""

    def __call__(
        self,
        layer: LayerAligner,
        source: Tensor,
        target: Tensor,
        source_mask: Tensor,
        target_mask: Tensor,
    ) -> Alignment:
        """See :class:`Carot`."""
        fitted = layer.subspace
        whole = LanguageSubspace(fitted.left[:, :0], fitted.right[:0], fitted.bias)
        unerased = LayerAligner(whole, layer.whitening, layer.means)
        return super().__call__(unerased, source, target, source_mask, target_mask)
