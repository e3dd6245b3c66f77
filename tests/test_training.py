"""Training runs: recipes, data, plans, resuming, and what is left in the folder."""

from __future__ import annotations

import copy
import json
import math
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import aligner_of, refusal
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from tiny import corpus, tiny_model, tiny_tokenizer
from transformers import TrainerCallback

import carot
from carot.models import load_model
from carot.models.anatomy import dissect
from carot.training import Instruction, Recipe, read_instructions, train
from carot.training.data import (
    EncodedInstruction,
    InstructionData,
    ParallelData,
    encode_instruction,
)
from carot.training.drift import drift, principal_angles
from carot.training.objectives import make_objectives, objective_names
from carot.training.plan import StepPlan, step_kinds
from carot.training.refit import corpus_vectors, fit_vectors

ROWS = [
    Instruction(f"The {language} capital {n} is", f"city {n % 7}", language, str(n))
    for n in range(12)
    for language in ("en", "es")
]


def recipe(objective: str = "carot", **changes: Any) -> Recipe:
    """A short run with a small adapter."""
    content: dict[str, Any] = {
        "objective": objective,
        "lora": {"r": 4, "alpha": 8, "dropout": 0.1},
        "align": {"layers": [1]},
        "schedule": {"steps": 4, "fraction": 0.5},
        "training": {
            "per_device_train_batch_size": 4,
            "logging_steps": 1,
            "warmup_steps": 0,
            "learning_rate": 1e-2,
            "use_cpu": True,
            "disable_tqdm": True,
        },
    }
    for section, values in changes.items():
        if isinstance(values, dict):
            content[section] = {**content.get(section, {}), **values}
        else:
            content[section] = values
    return Recipe.from_dict(content)


def run(output: Path, made: Recipe, **kwargs: Any) -> Any:
    kwargs.setdefault("aligner", aligner_of("gemma3"))
    model = kwargs.pop("model", None) or copy.deepcopy(tiny_model("gemma3"))
    return train(
        model, tiny_tokenizer(), made, output, instructions=ROWS, corpus=corpus(), **kwargs
    )


def log_of(output: Path) -> list[dict[str, float]]:
    return json.loads((output / "trainer_state.json").read_text())["log_history"]


def losses(output: Path) -> list[float]:
    return [row["loss"] for row in log_of(output) if "loss" in row]


# Recipes


def test_a_recipe_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    made = recipe("carot+midalign", schedule={"weights": {"midalign": 0.5}})
    path.write_text(made.to_yaml())
    assert Recipe.from_yaml(path) == made
    path.write_text("")
    assert Recipe.from_yaml(path) == Recipe()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"objektive": "sft"}, "no key 'objektive'; did you mean 'objective'?"),
        ({"align": {"theeta": 1}}, "no key 'align.theeta'; did you mean 'theta'?"),
        ({"align": {"zzz": 1}}, "no key 'align.zzz'; expected one of layers, theta"),
        ({"lora": {"rank": 1}}, "no key 'lora.rank'"),
        ({"align": {"theta": 2}}, "align.theta is 2; input should be less than or equal to 1"),
        ({"align": {"layers": "3"}}, "align.layers is '3'; input should be a valid list"),
        ({"schedule": {"kind": "both"}}, "schedule.kind is 'both'; input should be 'alternate'"),
        ([], "expected a mapping of keys, got []"),
    ],
)
def test_a_wrong_recipe_is_refused_in_one_line(content: Any, message: str) -> None:
    assert message in refusal(Recipe.from_dict, content)


def test_a_file_that_is_no_yaml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("objective: [sft")
    assert "r.yaml: not valid YAML" in refusal(Recipe.from_yaml, tmp_path / "r.yaml")


@pytest.mark.parametrize(
    "path",
    sorted((Path(__file__).parent.parent / "examples" / "recipes").glob("*.yaml")),
    ids=lambda path: path.stem,
)
def test_the_recipes_that_come_along_are_valid(path: Path) -> None:
    made = Recipe.from_yaml(path)
    names = objective_names(made)
    assert made.data.instructions or names == ["dco"]  # carot dco is given its data


@pytest.mark.parametrize(
    ("objective", "names"),
    [
        ("sft", ["sft"]),
        ("carot", ["sft", "carot"]),
        ("carot + midalign", ["sft", "carot", "midalign"]),
        ("carot+solar", ["solar", "carot"]),
    ],
)
def test_one_objective_holds_the_language_model_loss(objective: str, names: list[str]) -> None:
    assert objective_names(recipe(objective)) == names


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("karot", "objective 'karot'; did you mean 'carot'?"),
        ("sft+solar", "one of those on the same data: sft, sft_gold, solar"),
        ("carot+carot", "expected each once"),
    ],
)
def test_objectives_that_do_not_go_together_are_refused(objective: str, message: str) -> None:
    assert message in refusal(objective_names, recipe(objective))


def test_a_weight_of_another_objective_is_refused() -> None:
    made = recipe("carot", schedule={"weights": {"solar": 1}})
    assert "schedule.weights names 'solar'" in refusal(objective_names, made)


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"lerning_rate": 1}, "no key 'training.lerning_rate'; did you mean 'learning_rate'?"),
        ({"max_steps": 1}, "training.max_steps is set by the schedule"),
        ({"save_strategy": "often"}, "training: "),
    ],
)
def test_training_arguments_are_checked(tmp_path: Path, training: Any, message: str) -> None:
    assert message in refusal(run, tmp_path / "out", recipe(training=training))
    assert not (tmp_path / "out").exists()


# Data


def test_instructions_are_read_under_the_names_of_aya_too(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [
        {"prompt": "a", "response": "b", "language": "es", "id": 7},
        {"inputs": "c", "targets": "d", "language_code": "fr"},
        {"prompt": "e", "response": "f"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = read_instructions(path, tiny_tokenizer())
    assert read == [
        Instruction("a", "b", "es", "7"),
        Instruction("c", "d", "fr", "1"),
        Instruction("e", "f", "und", "2"),
    ]
    assert read_instructions(path, tiny_tokenizer(), ["fr"]) == read[1:2]
    assert "nothing in de; there: es, fr, und" in refusal(
        read_instructions, path, tiny_tokenizer(), ["de"]
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "a"}, "row 1: no 'response'; there: prompt"),
        ({"prompt": " ", "response": "b"}, "row 1: 'prompt' is ' '; expected a text"),
        ({"messages": [{"role": "user", "content": "a"}]}, "must end with the assistant's turn"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "no chat template"),
    ],
)
def test_a_row_without_what_is_needed_is_refused(tmp_path: Path, row: Any, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    assert message in refusal(read_instructions, path, tiny_tokenizer())


def test_chat_rows_are_rendered_and_trained_on_the_last_turn(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}"
        "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    path = tmp_path / "rows.jsonl"
    turns = [("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "four")]
    messages = [{"role": role, "content": text} for role, text in turns]
    path.write_text(json.dumps({"messages": messages, "language": "en"}) + "\n")
    row = read_instructions(path, tokenizer)[0]
    made = encode_instruction(tokenizer, row, separator=None, end=True, max_length=200)
    assert made is not None
    assert tokenizer.decode(made.ids[made.response_start :]) == "four<eos>"
    assert made.ids.count(1) == 1  # one BOS, which the template writes
    assert made.ids[-1] == 2
    assert made.ids.count(2) == 4


@pytest.mark.parametrize(("end", "tail"), [(True, " Paris<eos>"), (False, " Paris")])
def test_a_response_follows_its_prompt_and_is_ended_once(end: bool, tail: str) -> None:
    tokenizer = tiny_tokenizer()
    row = Instruction("The capital is", "Paris", "en", "0")
    made = encode_instruction(tokenizer, row, separator=None, end=end, max_length=64)
    assert made is not None
    assert tokenizer.decode(made.ids[made.response_start :]) == tail
    assert made.ids[0] == 1


def test_a_response_beyond_the_length_is_left_out() -> None:
    row = Instruction("The capital of the country is", "Paris", "en", "0")
    kept = encode_instruction(tiny_tokenizer(), row, separator=None, end=True, max_length=4)
    assert kept is None


def test_each_pass_takes_every_row_once() -> None:
    data = InstructionData([EncodedInstruction([1, 2], 1, "en", str(n)) for n in range(10)])
    batches = list(islice(data.batches(4, seed=0), 5))
    assert all(len(batch) == 4 for batch in batches)
    counts = Counter(row for batch in batches for row in batch)
    assert counts == dict.fromkeys(range(10), 2)
    assert batches != list(islice(data.batches(4, seed=1), 5))
    assert batches == list(islice(data.batches(4, seed=0), 5))


def test_translations_of_an_item_stay_together() -> None:
    languages = ("en", "es", "ru")
    rows = [EncodedInstruction([1, 2], 1, lang, str(n)) for n in range(5) for lang in languages]
    data = InstructionData(rows)
    for batch in islice(data.batches_of_items(7, seed=0), 20):
        assert len(batch) == 6
        for item in {rows[index].id for index in batch}:
            assert {rows[i].language for i in batch if rows[i].id == item} == set(languages)
    for batch in islice(data.batches_of_items(2, seed=0), 20):
        assert [rows[index].language == "en" for index in batch] == [True, False]


def test_pairs_are_english_with_each_other_language() -> None:
    data = ParallelData(corpus())
    assert len(data) == 2 * len(corpus())
    sentence, source, target = data[5]
    assert (source, target) == (corpus()["en"][sentence], corpus()["ru"][sentence])
    assert "expected English" in refusal(ParallelData, corpus().select(["es", "ru"]))


# Plans


def test_alignment_has_steps_of_its_own_in_the_first_part() -> None:
    kinds = step_kinds(4, ["instructions", "parallel"], 0.5, alternate=True)
    assert [next(iter(kind)) for kind in kinds] == [
        "instructions",
        "parallel",
        "instructions",
        "parallel",
        "instructions",
        "instructions",
    ]
    summed = step_kinds(4, ["instructions", "parallel"], 0.5, alternate=False)
    assert [len(kind) for kind in summed] == [2, 2, 1, 1]


@pytest.mark.parametrize("per_step", [1, 2, 6])
def test_alternation_counts_optimizer_steps(per_step: int) -> None:
    kinds = step_kinds(4, ["a", "b"], 0.5, alternate=True)
    begin = {
        "a": lambda: iter([[n] for n in range(99)]),
        "b": lambda: iter([[n] for n in range(99)]),
    }
    batches = list(StepPlan(kinds, begin, per_step))
    assert len(batches) == len(StepPlan(kinds, begin, per_step)) == 6 * per_step
    for step, kind in enumerate(kinds):
        here = batches[step * per_step : (step + 1) * per_step]
        assert {key[0] for batch in here for key in batch} == kind
    assert [batch[0][1] for batch in batches if batch[0][0] == "a"] == list(range(4 * per_step))


# Runs


@pytest.mark.parametrize(
    "objective", ["sft", "carot", "midalign", "solar", "carot+solar", "carot+midalign"]
)
@pytest.mark.parametrize("kind", ["alternate", "sum"])
def test_every_objective_trains(tmp_path: Path, objective: str, kind: str) -> None:
    made = recipe(objective, schedule={"kind": kind})
    model = run(tmp_path / "out", made)
    assert not model.training
    logged = {key for row in log_of(tmp_path / "out") for key in row if key.startswith("loss_")}
    assert logged == {f"loss_{name}" for name in objective_names(made)}
    assert all(math.isfinite(loss) for loss in losses(tmp_path / "out"))
    changed = [float(p.abs().sum()) for name, p in model.named_parameters() if "lora_B" in name]
    assert any(changed)
    assert Recipe.from_yaml(tmp_path / "out" / "recipe.yaml") == made
    assert (tmp_path / "out" / "aligner").is_dir() == ("carot" in objective)


def test_sft_learns_its_rows(tmp_path: Path) -> None:
    run(tmp_path / "out", recipe("sft", schedule={"steps": 40}))
    found = losses(tmp_path / "out")
    assert sum(found[-5:]) < 0.5 * sum(found[:5])


def test_the_carot_loss_falls(tmp_path: Path) -> None:
    made = recipe(
        "carot",
        schedule={"steps": 40, "fraction": 1, "weights": {"sft": 0}},
        data={"max_length": 32},
    )
    run(tmp_path / "out", made)
    found = [row["loss_carot"] for row in log_of(tmp_path / "out") if "loss_carot" in row]
    assert sum(found[-8:]) < 0.7 * sum(found[:8])


def test_weights_multiply_losses(tmp_path: Path) -> None:
    one = recipe(
        "carot", schedule={"kind": "sum", "weights": {"carot": 3}}, training={"learning_rate": 0.0}
    )
    run(tmp_path / "out", one)
    row = log_of(tmp_path / "out")[0]
    assert row["loss"] == pytest.approx(row["loss_sft"] + 3 * row["loss_carot"], rel=1e-4)


@pytest.mark.parametrize("objective", ["sft", "carot"])
def test_accumulation_changes_nothing(tmp_path: Path, objective: str) -> None:
    for size, accumulation in ((4, 1), (2, 2)):
        made = recipe(
            objective,
            lora={"dropout": 0},
            training={
                "per_device_train_batch_size": size,
                "gradient_accumulation_steps": accumulation,
            },
        )
        run(tmp_path / str(size), made)
    assert losses(tmp_path / "2") == pytest.approx(losses(tmp_path / "4"), rel=1e-4)


class StopAt(TrainerCallback):
    """An interruption: the run ends in the middle."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize("refit_every", [0, 2])
def test_an_interrupted_run_resumes_to_the_same_weights(tmp_path: Path, refit_every: int) -> None:
    made = recipe(
        "carot",
        align={"refit_every": refit_every},
        data={"held_out": 12},
        training={"save_steps": 2, "save_strategy": "steps"},
    )
    run(tmp_path / "whole", made)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", made, callbacks=[StopAt(3)])
    assert "holds checkpoints of a run" in refusal(run, tmp_path / "out", made)
    other = recipe("carot", training={"learning_rate": 1e-3})
    assert "was begun with " in refusal(run, tmp_path / "out", other, resume=True)
    run(tmp_path / "out", made, resume=True)
    whole, resumed = (
        load_file(tmp_path / name / "adapter_model.safetensors") for name in ("whole", "out")
    )
    for name, tensor in whole.items():
        assert torch.equal(tensor, resumed[name]), name
    digests = {
        carot.Aligner.from_pretrained(tmp_path / n / "aligner").digest() for n in ("whole", "out")
    }
    assert len(digests) == 1


def test_full_parameters_train_too_and_are_loaded_again(tmp_path: Path) -> None:
    run(tmp_path / "out", recipe("sft", lora=None))
    model, tokenizer = load_model(tmp_path / "out")
    assert tokenizer.decode(tokenizer("Hola")["input_ids"]) == "<bos>Hola"
    before = tiny_model("gemma3").state_dict()
    assert any(not torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("frozen", [False, True])
def test_embeddings_are_frozen_where_asked(tmp_path: Path, frozen: bool) -> None:
    content = {**recipe("sft", lora=None).model_dump(), "freeze_embeddings": frozen}
    trained = run(tmp_path / "out", Recipe.from_dict(content)).state_dict()
    before = tiny_model("gemma3").state_dict()
    changed = {name for name, value in trained.items() if not torch.equal(value, before[name])}
    assert ("model.embed_tokens.weight" in changed) == (not frozen)
    assert any("layers" in name for name in changed)


def test_a_trained_adapter_is_loaded_like_a_model(tmp_path: Path) -> None:
    base = tmp_path / "base"
    copy.deepcopy(tiny_model("gemma3")).save_pretrained(base)
    tiny_tokenizer().save_pretrained(base)
    model, _ = load_model(base)
    trained = run(tmp_path / "out", recipe("carot"), model=model)
    loaded, tokenizer = load_model(tmp_path / "out")
    inputs = tokenizer(["El tren"], return_tensors="pt")
    with torch.no_grad():
        expected = trained(**inputs).logits
        assert torch.allclose(loaded(**inputs).logits, expected, atol=1e-5)
        base_logits = load_model(base)[0](**inputs).logits
        assert not torch.allclose(loaded(**inputs).logits, base_logits, atol=1e-3)
    # A loaded adapter is trained on; a frozen teacher then is the model with it.
    again = run(tmp_path / "again", recipe("carot", align={"teacher": "frozen"}), model=loaded)
    with torch.no_grad():
        assert not torch.allclose(again(**inputs).logits, expected, atol=1e-3)


@pytest.mark.parametrize("adapted", [True, False])
def test_a_frozen_teacher_is_the_model_before_training(adapted: bool) -> None:
    model = copy.deepcopy(tiny_model("gemma3"))
    if adapted:
        model = get_peft_model(model, LoraConfig(r=4, task_type="CAUSAL_LM"))
    anatomy = dissect(model)
    made = recipe("carot", align={"teacher": "frozen"})
    [_, (objective, _)] = make_objectives(made, anatomy, aligner_of("gemma3"))
    for name, parameter in model.named_parameters():
        if "lora_B" in name or not adapted:
            parameter.data.add_(0.1)  # training
    ids = torch.tensor([[1, 40, 50, 60]])
    batch = {"source_ids": ids, "source_mask": torch.ones_like(ids)}
    states = objective._source_states(anatomy, batch)[1]
    with torch.no_grad():
        expected = tiny_model("gemma3")(ids, output_hidden_states=True).hidden_states[2]
        now = model(ids, output_hidden_states=True).hidden_states[2]
    assert torch.allclose(states, expected, atol=1e-5)
    assert not torch.allclose(now, expected, atol=1e-3)


def test_held_out_rows_are_evaluated_and_training_stops_early(tmp_path: Path) -> None:
    from transformers import EarlyStoppingCallback

    made = recipe(
        "sft",
        schedule={"steps": 30},
        training={
            "eval_strategy": "steps",
            "eval_steps": 2,
            "save_strategy": "steps",
            "save_steps": 2,
            "load_best_model_at_end": True,
            "learning_rate": 0.3,
        },
    )
    held_out = [Instruction("No city is", "here at all", "en", "x")]
    run(
        tmp_path / "out",
        made,
        eval_instructions=held_out,
        callbacks=[EarlyStoppingCallback(early_stopping_patience=1)],
    )
    state = json.loads((tmp_path / "out" / "trainer_state.json").read_text())
    assert state["global_step"] < 30
    assert all(
        math.isfinite(row["eval_loss"]) for row in state["log_history"] if "eval_loss" in row
    )


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path: Path) -> None:
    model = copy.deepcopy(tiny_model("gemma3"))
    model.model.layers[2].mlp.down_proj.weight.data[0, 0] = math.nan
    message = refusal(run, tmp_path / "out", recipe("sft"), model=model)
    assert "step 1: the loss of sft is nan" in message


@pytest.mark.parametrize(
    ("changes", "kwargs", "message"),
    [
        ({"align": {"layers": [9]}}, {}, "layer 9 is out of range"),
        ({"align": {"layers": [3]}}, {}, "layer 3 was not fitted"),
        ({"objective": "midalign", "midalign": {"layer": 7}}, {}, "layer 7 is out of range"),
        ({"data": {"max_length": 3}}, {}, "no instruction has a response within"),
        ({"align": {"refit_every": 1}, "data": {"held_out": 40}}, {}, "expected fewer"),
    ],
)
def test_a_recipe_that_does_not_fit_is_refused(
    tmp_path: Path, changes: Any, kwargs: Any, message: str
) -> None:
    objective = changes.pop("objective", "carot")
    assert message in refusal(run, tmp_path / "out", recipe(objective, **changes), **kwargs)


def test_an_aligner_of_another_model_is_refused(tmp_path: Path) -> None:
    message = refusal(run, tmp_path / "out", recipe("carot"), aligner=aligner_of("llama"))
    assert "this model has model type gemma3_text instead of llama" in message


def test_data_that_is_not_named_is_refused(tmp_path: Path) -> None:
    model, tokenizer = copy.deepcopy(tiny_model("gemma3")), tiny_tokenizer()
    message = refusal(train, model, tokenizer, recipe("sft"), tmp_path / "out")
    assert "names no data.instructions" in message
    message = refusal(train, model, tokenizer, recipe(), tmp_path / "out", instructions=ROWS)
    assert "names no data.parallel" in message


# Refitting


def test_refitting_logs_how_far_the_subspaces_turned(tmp_path: Path) -> None:
    made = recipe("carot", align={"refit_every": 3}, data={"held_out": 12}, lora=None)
    run(tmp_path / "out", made)
    rows = [row for row in log_of(tmp_path / "out") if "layer_1_language_angle_mean" in row]
    assert [row["step"] for row in rows] == [3, 6]
    for row in rows:
        assert 0 < row["layer_1_language_angle_mean"] <= row["layer_1_language_angle_max"] <= 90
        assert 0 < row["layer_1_covariance_angle_max"] <= 90
        assert -1 <= row["layer_1_cosine_es"] <= 1
    saved = carot.Aligner.from_pretrained(tmp_path / "out" / "aligner")
    assert saved.digest() != aligner_of("gemma3").digest()


def test_fitting_vectors_is_fitting_a_corpus() -> None:
    anatomy = dissect(tiny_model("gemma3"))
    vectors = corpus_vectors(anatomy, tiny_tokenizer(), corpus(), [1], 64)
    again = fit_vectors(aligner_of("gemma3"), vectors, corpus().languages)
    turned = drift(aligner_of("gemma3")[1], again[1])
    assert float(turned.language.max()) < 0.1
    assert float(turned.covariance.max()) < 0.1


def test_principal_angles_by_hand() -> None:
    identity = torch.eye(4, dtype=torch.float64)
    tilted = torch.stack([identity[0], (identity[1] + identity[2]) / math.sqrt(2)], 1)
    angles = principal_angles(identity[:, :2], tilted * torch.tensor([3.0, 0.1]))
    assert angles.tolist() == pytest.approx([0, 45], abs=1e-6)
    redundant = torch.cat([identity[:, :2], identity[:, :2].sum(1, keepdim=True)], 1)
    assert len(principal_angles(redundant, tilted)) == 2
    assert principal_angles(identity[:, :1], identity[:, 3:]).tolist() == pytest.approx([90])
