"""The plug-in of lm-evaluation-harness: same figures as the harness, and as carot by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import ENGLISH, LAYER, PROMPTS, aligner_of, steered
from tiny import corpus, tiny_model, tiny_tokenizer

lm_eval = pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

from carot import CarotError  # noqa: E402
from carot.evaluation.lm_eval import CarotLM, StopAtText, cut  # noqa: E402

NAME = "llama"
CONTINUATIONS = [" la noche", " el", " x", " mañana temprano en punto"]


def carot_lm(name: str = NAME, **options: Any) -> CarotLM:
    options = {"layer": LAYER, "theta": 1.0, "batch_size": 3} | options
    return CarotLM(tiny_model(name), aligner_of(name), tokenizer=tiny_tokenizer(), **options)


@cache
def harness_lm(name: str = NAME) -> Any:
    return HFLM(tiny_model(name), tokenizer=tiny_tokenizer(), batch_size=2)


def request(context: str, continuation: Any, kind: str = "loglikelihood", **doc: Any) -> Instance:
    number = len(doc.get("english") or "") + 1000 * len(context)
    return Instance(kind, doc, (context, continuation), 0, ("task", number, 1))


def requests_for(english: Sequence[str | None]) -> list[Instance]:
    """Every context with every continuation, not in the order of the contexts."""
    return [
        request(prompt, text, english=source)
        for text in CONTINUATIONS
        for prompt, source in zip(PROMPTS, english, strict=True)
    ]


def greedy_text(prompt: str) -> str:
    """What the model goes on with, where its text gives the same tokens again; else nothing."""
    tokenizer = tiny_tokenizer()
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    whole = tiny_model(NAME).generate(ids, max_new_tokens=3, do_sample=False)[0].tolist()
    text = str(tokenizer.decode(whole[ids.shape[1] :]))
    return text if tokenizer(prompt + text)["input_ids"] == whole else ""


def assert_close(actual: Any, expected: Any, tolerance: float = 1e-4) -> None:
    assert [greedy for _, greedy in actual] == [greedy for _, greedy in expected]
    actual, expected = ([value for value, _ in scores] for scores in (actual, expected))
    assert actual == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt2"])
def test_unsteered_log_likelihoods_are_the_harness_s(name: str) -> None:
    requests = requests_for([None] * 4)
    requests += [request("", " la noche"), request("", "x"), request("Agua ", "fría")]
    requests += [request("<bos>El tren", " sale"), request("La lun", "a sale"), requests[0]]
    expected = harness_lm(name).loglikelihood(requests, disable_tqdm=True)
    assert_close(carot_lm(name).loglikelihood(requests, disable_tqdm=True), expected)


def test_greedy_continuations_are_found() -> None:
    sentences = [sentence for language in ("en", "es") for sentence in corpus()[language]]
    prompt, text = next((s, greedy_text(s)) for s in sentences if greedy_text(s))
    requests = [request(prompt, text), request(prompt, text + "zz"), request(prompt, "zz" + text)]
    expected = harness_lm().loglikelihood(requests, disable_tqdm=True)
    assert [greedy for _, greedy in expected] == [True, False, False]
    assert_close(carot_lm().loglikelihood(requests), expected)


def test_rolling_is_the_harness_s() -> None:
    requests = [
        Instance("loglikelihood_rolling", {"english": source}, (prompt,), 0, ("task", 0, 1))
        for prompt, source in zip([PROMPTS[0], PROMPTS[2] * 9], ENGLISH[:2], strict=True)
    ]
    actual = carot_lm().loglikelihood_rolling(requests, disable_tqdm=True)
    assert actual == pytest.approx(harness_lm().loglikelihood_rolling(requests), abs=1e-3)


@pytest.mark.parametrize("batch_size", [1, 3, "auto"])
@pytest.mark.parametrize("hooks", ["nnsight", "torch"])
def test_steered_log_likelihoods_are_carot_s(batch_size: int | str, hooks: str) -> None:
    by_prompt = steered(NAME).score(
        PROMPTS, CONTINUATIONS, ENGLISH, separator="", reduction="sum", batch_size=4
    )
    expected = [by_prompt[i][j] for j in range(len(CONTINUATIONS)) for i in range(len(PROMPTS))]
    lm = carot_lm(batch_size=batch_size, hooks=hooks)
    actual = lm.loglikelihood(requests_for(ENGLISH), disable_tqdm=True)
    assert [value for value, _ in actual] == pytest.approx(expected, abs=1e-4)
    plain = lm.loglikelihood(requests_for([None] * 4), disable_tqdm=True)
    assert [value for value, _ in actual] != pytest.approx([value for value, _ in plain], abs=1e-2)


@torch.no_grad()
def test_continuations_are_not_moved() -> None:
    model, tokenizer = steered(NAME, "torch"), tiny_tokenizer()
    prompt, english, continuation = PROMPTS[2], ENGLISH[2], CONTINUATIONS[3]
    context = tokenizer(prompt)["input_ids"]
    whole = tokenizer(prompt + continuation)["input_ids"]
    assert whole[: len(context)] == context
    seen = {}
    layer = model.anatomy.layers[LAYER]

    def keep(key: str) -> Any:
        def hook(_module: Any, _args: Any, output: Any) -> None:
            seen[key] = (output if isinstance(output, torch.Tensor) else output[0])[0].clone()

        return hook

    ids = torch.tensor([whole])
    with layer.register_forward_hook(keep("plain")):
        model.model(input_ids=ids)
    # Only the context's positions are in the content mask: the rest of one pass over both stays.
    batch = model._steerer.encode([prompt], [None], ["prompt"])
    states = model._steerer.read_english([english], [None])

    def run() -> Any:
        with layer.register_forward_hook(keep("steered")):
            return model.model(input_ids=ids).logits[0]

    log_probs = model._steerer.run(batch, states, run).log_softmax(-1)
    moved = (seen["plain"] - seen["steered"]).abs().amax(-1) > 0
    assert moved[1 : len(context)].all()
    assert not moved[len(context) :].any()
    positions = range(len(context) - 1, len(whole) - 1)
    expected = sum(float(log_probs[p, whole[p + 1]]) for p in positions)
    ((actual, _),) = carot_lm().loglikelihood([request(prompt, continuation, english=english)])
    assert actual == pytest.approx(expected, abs=1e-4)


def test_documents_without_english_are_unsteered_and_counted() -> None:
    lm = carot_lm()
    english = [ENGLISH[0], "", None, " "]
    actual = lm.loglikelihood([*requests_for(english), request("", " x", english="y")])[:-1]
    plain = lm.loglikelihood(requests_for([None] * 4))
    full = lm.loglikelihood(requests_for(ENGLISH))
    for position, score in enumerate(actual):
        expected = full if position % 4 == 0 else plain
        assert score[0] == pytest.approx(expected[position][0], abs=1e-4)
    lm = carot_lm(english_field="en")
    documents = [{"en": "Bread"}, {"english": "Bread"}, {"en": ""}]
    lm.loglikelihood([Instance("loglikelihood", doc, ("Pan", " x"), 0) for doc in documents])
    info = lm.get_model_info()["carot"]
    assert (info["documents"], info["documents_without_english"]) == (3, 2)
    json.dumps(info)


def test_only_the_last_marked_part_of_a_context_is_steered() -> None:
    example, question, end = "Pregunta: ¿Pan? Sí.\nPregunta: ", "El tren sale", "\nRespuesta:"
    marked = f"Pregunta: @@¿Pan?@@ Sí.\nPregunta: @@{question}@@{end}"
    lm = carot_lm(content_marker="@@")
    ((actual, _),) = lm.loglikelihood([request(marked, " x", english="The @@train@@ leaves")])
    ((expected,),) = steered(NAME).score(
        [example + question + end],
        ["x"],
        ["The train leaves"],
        content=[(len(example), len(example + question))],
        english_content=[(4, 9)],
        separator=" ",
        reduction="sum",
    )
    assert actual == pytest.approx(expected, abs=1e-4)
    ((unsteered, _),) = lm.loglikelihood([request(marked, " x")])
    assert unsteered == pytest.approx(
        steered(NAME).score([example + question + end], ["x"], separator=" ", reduction="sum")[0][
            0
        ],
        abs=1e-4,
    )


def generated(prompts: Sequence[str], english: Sequence[str | None], **options: Any) -> list[str]:
    return list(steered(NAME).generate(prompts, english, do_sample=False, **options))


def test_generation_is_carot_s_up_to_the_stop_string() -> None:
    whole = generated(PROMPTS, ENGLISH, max_new_tokens=12)
    # Two kinds of options, in turns, and stop strings that stand in the answers.
    stops = [text[3:5] for text in whole]
    until = [stop for stop in stops if "�" not in stop][:2]
    assert until
    options = [{"until": until, "max_gen_toks": 12}, {"until": [], "max_gen_toks": 3}] * 2
    requests = [
        request(prompt, kind, "generate_until", english=source)
        for prompt, source, kind in zip(PROMPTS, ENGLISH, options, strict=True)
    ]
    short = generated(PROMPTS, ENGLISH, max_new_tokens=3)
    expected = [cut(whole[0], until), short[1], cut(whole[2], until), short[3]]
    assert expected[0] != whole[0] or expected[2] != whole[2]
    assert carot_lm().generate_until(requests, disable_tqdm=True) == expected


def test_unsteered_generation_is_the_harness_s() -> None:
    options = {"until": ["e"], "max_gen_toks": 8, "temperature": 0.0}
    requests = [request(prompt, dict(options), "generate_until") for prompt in PROMPTS]
    expected = harness_lm().generate_until(requests, disable_tqdm=True)
    assert carot_lm().generate_until(requests, disable_tqdm=True) == expected


def test_generation_stops_soon_after_a_stop_string_and_not_for_the_prompt_s() -> None:
    tokenizer = tiny_tokenizer()
    ids = tokenizer(["a sto", "stop it"], add_special_tokens=False)["input_ids"]
    width = max(map(len, ids))
    prompt = torch.tensor([[0] * (width - len(row)) + row for row in ids])
    stop = StopAtText(tokenizer, ["stop", ""])
    row = prompt
    for letter, expected in zip("pstopx", [False, False, False, False, True, True], strict=True):
        (new,) = tokenizer(letter, add_special_tokens=False)["input_ids"]
        row = torch.cat([row, torch.full((2, 1), new)], -1)
        assert stop(row, torch.empty(0)).tolist() == [expected, expected], letter
    assert cut("one stop two end", ["end", "stop"]) == "one "
    assert cut("one", []) == "one"


TASK = """
task: tiny_facts
dataset_path: json
dataset_kwargs:
  data_files: {data}
test_split: train
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{options}}}}"
doc_to_target: answer
metric_list:
  - metric: acc
"""


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[dict[str, Any]]]:
    """A folder with a task, and its documents; the last has no English."""
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    options = ["la noche", "el", "x", "mañana temprano"]
    documents = [
        {"question": prompt, "options": options, "answer": row % 4, "english": english}
        for row, (prompt, english) in enumerate(zip(PROMPTS * 2, ENGLISH * 2, strict=True))
    ]
    documents[-1]["english"] = ""
    data = tmp_path / "facts.jsonl"
    data.write_text("\n".join(map(json.dumps, documents)), encoding="utf-8")
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "tiny_facts.yaml").write_text(TASK.format(data=data), encoding="utf-8")
    return folder, documents


def accuracy_by_hand(documents: list[dict[str, Any]]) -> float:
    scores = steered(NAME).score(
        [document["question"] for document in documents],
        [document["options"] for document in documents],
        [document["english"] for document in documents],
        separator=" ",
        reduction="sum",
    )
    chosen = [max(range(len(row)), key=row.__getitem__) for row in scores]
    right = [x == document["answer"] for x, document in zip(chosen, documents, strict=True)]
    return sum(right) / len(right)


def test_a_whole_run_gives_the_accuracy_of_scoring_by_hand(
    task: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, documents = task
    lm = carot_lm()
    results = lm_eval.simple_evaluate(
        model=lm,
        tasks=["tiny_facts"],
        task_manager=TaskManager(include_path=str(folder)),
        bootstrap_iters=0,
    )
    accuracy = results["results"]["tiny_facts"]["acc,none"]
    assert accuracy == pytest.approx(accuracy_by_hand(documents))
    scores = steered(NAME).score(
        [documents[0]["question"]],
        [documents[0]["options"]],
        [documents[0]["english"]],
        reduction="sum",
    )
    first = [resps[0][0] for resps in results["samples"]["tiny_facts"][0]["resps"]]
    assert first == pytest.approx(scores[0], abs=1e-4)
    assert results["config"]["carot"]["documents_without_english"] == 1


@pytest.mark.slow
def test_the_command_line_knows_the_model(
    task: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    folder, documents = task
    tiny_model(NAME).save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    aligner_of(NAME).save_pretrained(tmp_path / "aligner")
    arguments = f"pretrained={tmp_path / 'model'},aligner={tmp_path / 'aligner'}"
    command = [sys.executable, "-m", "carot.evaluation.lm_eval", "--model", "carot"]
    command += ["--model_args", f"{arguments},layers={LAYER},theta=1.0", "--tasks", "tiny_facts"]
    command += ["--include_path", str(folder), "--output_path", str(tmp_path / "out")]
    command += ["--batch_size", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "1 of 8 documents so far have no English text" in done.stderr
    (file,) = (tmp_path / "out").rglob("results_*.json")
    results = json.loads(file.read_text(encoding="utf-8"))
    accuracy = results["results"]["tiny_facts"]["acc,none"]
    assert accuracy == pytest.approx(accuracy_by_hand(documents))
    assert results["config"]["carot"]["layers"] == [LAYER]


def test_several_layers_are_named_with_a_plus() -> None:
    assert carot_lm(layer=None, layers="1+2").carot.layers == [1, 2]
    assert carot_lm(layer=None, layers=2).carot.layers == [2]
    assert carot_lm(layer=None, layers=[2]).carot.layers == [2]
    with pytest.raises(CarotError, match="layers='1,x'; expected numbers"):
        carot_lm(layer=None, layers="1,x")


def test_the_caller_s_tokenizer_stays_as_it_is() -> None:
    tokenizer = tiny_tokenizer(pad=False)
    lm = CarotLM(tiny_model(NAME), aligner_of(NAME), tokenizer=tokenizer, layer=LAYER)
    assert tokenizer.pad_token_id is None
    assert lm.tokenizer.pad_token_id is not None


@pytest.mark.parametrize(
    ("context", "continuation", "english", "message"),
    [
        ("@@Pan@@", "", "Bread", "continuation '' is empty"),
        ("@@Pan@@", " x", ["Bread"], "'english' holds list; expected"),
        ("Pan", " x", "Bread", "has no content marker '@@'"),
        ("@@Pan", " x", "Bread", "stands 1 times; expected pairs"),
        ("Pan@@@@", " x", "Bread", "context of document .* '@@' encloses nothing"),
        ("@@Pan@@", " x", "@@Bread", "the English text of document .* stands 1 times"),
        ("@@Pan@@ " * 120, " x", "Bread", "the model holds 256: take fewer examples"),
    ],
)
def test_bad_documents_are_named(
    context: str, continuation: str, english: Any, message: str
) -> None:
    lm = carot_lm(content_marker="@@")
    with pytest.raises(CarotError, match=message):
        lm.loglikelihood([request(context, continuation, english=english)])


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(CarotError, match="carot has no setting 'tetha'"):
        carot_lm(tetha=1)


def test_auto_halves_the_batch_when_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = carot_lm(batch_size="auto", max_batch_size=4)
    score_rows, sizes = lm.carot.score_rows, []

    def small(pairs: Any, rows: Any, **options: Any) -> Any:
        sizes.append(len(rows))
        if len(rows) > 2:
            raise torch.OutOfMemoryError
        return score_rows(pairs, rows, **options)

    expected = lm.loglikelihood(requests_for(ENGLISH))
    monkeypatch.setattr(lm.carot, "score_rows", small)
    assert_close(lm.loglikelihood(requests_for(ENGLISH)), expected)
    assert sizes == [4, 2, 2]
    lm = carot_lm(batch_size=4)
    monkeypatch.setattr(lm.carot, "score_rows", small)
    with pytest.raises(torch.OutOfMemoryError):
        lm.loglikelihood(requests_for(ENGLISH))


def test_a_model_that_calls_no_head_module_scores_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = carot_lm().loglikelihood(requests_for(ENGLISH))
    model = tiny_model(NAME)
    assert not model.get_output_embeddings()._forward_pre_hooks
    monkeypatch.setattr(model, "get_output_embeddings", lambda: None)
    assert_close(carot_lm().loglikelihood(requests_for(ENGLISH)), expected)
