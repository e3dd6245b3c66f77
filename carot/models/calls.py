"""What the model is called with, seen from inside: for steering calls that other code makes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from carot.errors import CarotError
from carot.models.anatomy import Anatomy, without_adapter
from carot.models.encoding import content_mask


class ObservedCall:
    """The running call: its token ids, masks, and whether it is a prefill.

    Parameters
    ----------
    special : set of int
        Ids that are never content.
    """

    def __init__(self, special: set[int]) -> None:
        self._special = special
        self._input_ids: Tensor | None = None
        self._attention_mask: Tensor | None = None
        self._without_cache: tuple[Tensor, int] | None = None
        self.is_prefill = True

    def observe(self, arguments: dict[str, Any], inner: bool) -> None:
        """Take what a module is called with; an inner one only adds to what an outer one was."""
        ids, mask = arguments.get("input_ids"), arguments.get("attention_mask")
        if ids is not None or not inner:
            self._input_ids, self._attention_mask = ids, None
        if isinstance(mask, Tensor) and mask.dim() == 2:
            self._attention_mask = mask
        cache = arguments.get("cache", arguments.get("past_key_values"))
        past = 0 if cache is None else int(cache.get_seq_length())
        self.is_prefill = past == 0
        if past and ids is not None and ids.shape[1] > 1:
            raise CarotError(
                f"the model was called with {ids.shape[1]} tokens that go on from a cache inside "
                "intervene(); expected a prefill in one pass, then single tokens: use "
                "CarotModel.generate for assisted decoding, and no prefill_chunk_size"
            )
        if not inner:
            self._follow_without_cache(arguments.get("use_cache"))

    def _follow_without_cache(self, use_cache: bool | None) -> None:
        """Remember the prompt while a generation without cache repeats it with more tokens.

        Beam search may put other new tokens behind a row, but never another prompt.
        """
        ids, before = self._input_ids, self._without_cache
        self._without_cache = None
        if use_cache is False and ids is not None:
            prompt, width = before or (ids, -1)
            repeated = ids[:, : prompt.shape[1]]
            goes_on = ids.shape[1] == width + 1 and torch.equal(repeated, prompt)
            self._without_cache = (prompt if goes_on else ids, ids.shape[1])

    def content_mask_of(self, prompts: int) -> Tensor:
        """Content tokens of the call's prompts, boolean, shape (prompts, S or fewer).

        Parameters
        ----------
        prompts : int
            How many there are; the call has a multiple of their rows, each repeated in place.
        """
        if self._input_ids is None:
            raise CarotError(
                "the model was called without input_ids inside intervene(); expected token ids, "
                "which say what is content"
            )
        ids, mask = self._input_ids, self._attention_mask
        if mask is None:
            mask = torch.ones_like(ids)
        if ids.shape[0] % prompts:
            raise CarotError(
                f"the model was called with {ids.shape[0]} rows inside intervene() with {prompts} "
                "English texts; expected as many, or a multiple"
            )
        if mask.shape != ids.shape:
            raise CarotError(
                f"attention_mask has shape {tuple(mask.shape)} and input_ids {tuple(ids.shape)} "
                "inside intervene(); expected a prefill in one pass"
            )
        repeats = ids.shape[0] // prompts
        content = content_mask(ids[::repeats], mask[::repeats], self._special)
        if self._without_cache is not None:
            content = content[:, : self._without_cache[0].shape[1]]
        return content


@contextmanager
def observed_calls(anatomy: Anatomy, special: set[int]) -> Iterator[ObservedCall]:
    """Watch, in this thread, the calls of the model, of what an adapter wraps, and its decoder."""
    call, owner = ObservedCall(special), threading.get_ident()

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if threading.get_ident() == owner:
            positional = {"input_ids": args[0]} if args else {}
            inner = module is anatomy.decoder and module is not anatomy.model
            call.observe(positional | kwargs, inner)

    with ExitStack() as stack:
        modules = (anatomy.model, without_adapter(anatomy.model), anatomy.decoder)
        for module in dict.fromkeys(modules):
            handle = module.register_forward_pre_hook(before, with_kwargs=True)
            stack.callback(handle.remove)
        yield call
