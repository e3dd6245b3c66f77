"""Tiny randomly initialised models of many architectures, and a tokenizer for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from carot.corpora import ParallelCorpus

VOCABULARY = 400
LAYERS = 4
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def _small(*without: str, **extra: Any) -> dict[str, Any]:
    return {key: value for key, value in SIZES.items() if key not in without} | extra


def _gemma3_multimodal() -> Any:
    config = hf.Gemma3Config(
        text_config=_small(sliding_window=16),
        vision_config={
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": 2,
            "image_size": 28,
            "patch_size": 14,
        },
        mm_tokens_per_image=4,
        image_token_index=VOCABULARY - 1,
        boi_token_index=VOCABULARY - 2,
        eoi_token_index=VOCABULARY - 3,
    )
    return hf.Gemma3ForConditionalGeneration(config)


ARCHITECTURES: dict[str, Callable[[], Any]] = {
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SIZES)),
    "mistral": lambda: hf.MistralForCausalLM(hf.MistralConfig(**SIZES)),
    "qwen2": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**SIZES)),
    "qwen3": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**SIZES)),
    "qwen3_moe": lambda: hf.Qwen3MoeForCausalLM(
        hf.Qwen3MoeConfig(
            **SIZES, num_experts=LAYERS, num_experts_per_tok=2, moe_intermediate_size=16
        )
    ),
    "gemma2": lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(**_small(sliding_window=16))),
    "gemma3": lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**_small(sliding_window=16))),
    "gemma3_multimodal": _gemma3_multimodal,
    "phi3": lambda: hf.Phi3ForCausalLM(hf.Phi3Config(**_small("head_dim"))),
    "olmo2": lambda: hf.Olmo2ForCausalLM(hf.Olmo2Config(**_small("head_dim"))),
    "cohere": lambda: hf.CohereForCausalLM(hf.CohereConfig(**_small("head_dim"))),
    "falcon": lambda: hf.FalconForCausalLM(
        hf.FalconConfig(
            **_small("head_dim", "intermediate_size", "num_key_value_heads"), ffn_hidden_size=48
        )
    ),
    "gpt2": lambda: hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=VOCABULARY,
            n_embd=32,
            n_layer=LAYERS,
            n_head=4,
            n_positions=256,
            bos_token_id=1,
            eos_token_id=2,
        )
    ),
    "gpt_neox": lambda: hf.GPTNeoXForCausalLM(
        hf.GPTNeoXConfig(**_small("head_dim", "num_key_value_heads"))
    ),
}


@cache
def tiny_model(name: str) -> Any:
    """A model of one architecture with random weights, in float32 and evaluation mode."""
    torch.manual_seed(0)
    model = ARCHITECTURES[name]().eval()
    for parameter in model.parameters():
        # Default initialisation is so small that attention and MLP hardly change anything.
        if parameter.dim() == 2:
            parameter.data.normal_(std=0.15)
    model.generation_config.pad_token_id = 0
    return model


@cache
def corpus() -> ParallelCorpus:
    """Some of the bundled sentences."""
    return ParallelCorpus.bundled(["en", "es", "ru"], limit=40)


@cache
def _trained(bos: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 10,
        special_tokens=["<pad>", "<bos>", "<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus()["en"], trainer)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", 1)]
        )
    return tokenizer


def tiny_tokenizer(*, bos: bool = True, pad: bool = True) -> Any:
    """A byte-level tokenizer, with or without BOS and a pad token."""
    special = {"eos_token": "<eos>"}
    special |= {"bos_token": "<bos>"} if bos else {}
    special |= {"pad_token": "<pad>"} if pad else {}
    return hf.PreTrainedTokenizerFast(tokenizer_object=_trained(bos), **special)
