"""One benchmark through `carot eval` and through lm-evaluation-harness: the figures are the same.

The bundled facts, with their first wrong answers as lettered options, are written in the layout of
Global-MMLU and as a task of the harness. A letter is one token, so that the harness's sums and
carot's means of log-probabilities rank alike.

    python scripts/compare_lm_eval.py --aligner FOLDER [--model demo] [--language es] [--limit 60]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.tasks import TaskManager

from carot import Aligner, evaluate, load_model
from carot.evaluation.items import RankingItem
from carot.evaluation.lm_eval import CarotLM
from carot.evaluation.questions import draw_questions
from carot.evaluation.tasks import get_task

MARKER = "@@"
TASK = """
task: lettered_facts
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


def write_lettered(folder: Path, language: str) -> None:
    """Write the facts of one language as Global-MMLU has its questions."""
    items, _ = get_task("demo").load(language)
    lines = []
    for number, (key, item) in enumerate(sorted(items.items())):
        if not isinstance(item, RankingItem):
            continue
        options = [text for place, text in enumerate(item.candidates) if place != item.answer][:3]
        options.insert(number % 4, item.candidates[item.answer])
        row = {"sample_id": key, "question": f"{item.prompt} ...", "answer": "ABCD"[number % 4]}
        row |= dict(zip(("option_a", "option_b", "option_c", "option_d"), options, strict=True))
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    path = folder / language / "test.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(lines), encoding="utf-8")


def marked(item: RankingItem) -> str:
    """The prompt with its content between markers."""
    if item.content is None:
        return item.prompt
    start, end = item.content
    return f"{item.prompt[:start]}{MARKER}{item.prompt[start:end]}{MARKER}{item.prompt[end:]}"


def through_the_harness(lm: Any, folder: Path, items: Any, language: str) -> tuple[float, Any]:
    """Accuracy and log-probabilities by the harness, on the same items."""
    rows = [
        {
            "question": marked(item),
            "options": list(item.candidates),
            "answer": item.answer,
            "english": marked(english),
        }
        for item, english in zip(items[language], items["en"], strict=True)
    ]
    data = folder / "lettered_facts.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "lettered_facts.yaml").write_text(TASK.format(data=data), encoding="utf-8")
    results = lm_eval.simple_evaluate(
        model=lm,
        tasks=["lettered_facts"],
        task_manager=TaskManager(include_path=str(folder)),
        bootstrap_iters=0,
    )
    scores = [
        [response[0][0] for response in sample["resps"]]
        for sample in results["samples"]["lettered_facts"]
    ]
    return results["results"]["lettered_facts"]["acc,none"], scores


def main() -> None:
    """Evaluate the unsteered and the steered model both ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--aligner", required=True)
    parser.add_argument("--language", default="es")
    parser.add_argument("--limit", type=int, default=60)
    options = parser.parse_args()

    model, tokenizer = load_model(options.model)
    aligner = Aligner.from_pretrained(options.aligner)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for language in ("en", options.language):
            write_lettered(folder / "facts", language)
        task = get_task("gmmlu", folder / "facts")
        results = evaluate(model, tokenizer, aligner, task, [options.language], limit=options.limit)
        items = draw_questions(task, [options.language], options.limit).items
        for method, english_field in (("none", None), ("carot", "english")):
            lm = CarotLM(
                model,
                aligner,
                tokenizer=tokenizer,
                english_field=english_field,
                content_marker=MARKER,
                batch_size=16,
            )
            accuracy, scores = through_the_harness(lm, folder, items, options.language)
            mine = [
                row["scores"]
                for row in results["predictions"]
                if (row["method"], row["language"]) == (method, options.language)
            ]
            apart = max(
                abs(a - b)
                for ours, theirs in zip(mine, scores, strict=True)
                for a, b in zip(ours, theirs, strict=True)
            )
            own = results["metrics"][method][options.language]["accuracy"]
            print(
                f"{method:6} carot eval {100 * own:.1f}, lm_eval {100 * accuracy:.1f}; "
                f"log-probabilities differ by {apart:.1e} at most"
            )


if __name__ == "__main__":
    main()
