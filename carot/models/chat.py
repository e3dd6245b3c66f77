"""Chat templates: what stands around the turn of a user."""

from __future__ import annotations

from typing import Any

from carot.errors import CarotError

_PLACE = "\ue000"  # of a private area: in no template, and trimmed by none


def chat_frame(tokenizer: Any) -> tuple[str, str]:
    """Return what a tokenizer's chat template puts before and behind the one turn of a user.

    Behind it stands what asks the model for its answer. The text between both is the content.

    Raises
    ------
    CarotError
        When the tokenizer has no chat template, or one that drops the turn.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise CarotError(
            "the tokenizer has no chat template; use a chat model, or leave out chat (--chat)"
        )
    messages = [{"role": "user", "content": _PLACE}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    before, place, behind = text.partition(_PLACE)
    if not place:
        raise CarotError("the tokenizer's chat template leaves out what the user says")
    return before, behind
