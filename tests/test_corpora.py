"""Parallel text from files, JSON lines, hub data sets, NTREX and the package itself."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from helpers import refusal

from carot.corpora import ParallelCorpus
from carot.corpora.parallel import NTREX_CODES, read_jsonl

ENGLISH = ["Good day.", "The cat sleeps.", "It rains."]
SPANISH = ["Buenos días.", "El gato duerme.", "Llueve."]
JAPANESE = ["こんにちは。", "猫が寝ている。", "雨が降る。"]
TEXTS = {"en": ENGLISH, "es": SPANISH, "ja": JAPANESE}


def write_lines(path: Path, lines: list[str], *, ending="\n", encoding="utf-8") -> Path:
    path.write_bytes("".join(line + ending for line in lines).encode(encoding))
    return path


def write_rows(path: Path, rows: list) -> Path:
    return write_lines(path, [json.dumps(row, ensure_ascii=False) for row in rows])


def rows_of(texts: dict[str, list[str]]) -> list[dict[str, str]]:
    return [dict(zip(texts, row, strict=True)) for row in zip(*texts.values(), strict=True)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One file a language, and a file that is none."""
    for language, lines in TEXTS.items():
        write_lines(tmp_path / f"{language}.txt", lines)
    (tmp_path / "README.md").write_text("Not a language.")
    return tmp_path


def texts_of(corpus: ParallelCorpus) -> dict[str, list[str]]:
    return {language: list(corpus[language]) for language in corpus.languages}


# The corpus itself


def test_a_corpus_holds_its_languages_in_the_order_given():
    corpus = ParallelCorpus({"es": SPANISH, "en": ENGLISH})
    assert corpus.languages == ["es", "en"]
    assert len(corpus) == 3
    assert corpus["en"] == ENGLISH


def test_a_corpus_contains_languages_and_iterates_over_sentences():
    corpus = ParallelCorpus(TEXTS)
    assert "es" in corpus
    assert "fr" not in corpus
    rows = list(corpus)
    assert len(rows) == len(corpus)
    assert rows[1] == {language: sentences[1] for language, sentences in TEXTS.items()}


def test_white_space_around_a_sentence_is_taken_off():
    corpus = ParallelCorpus({"en": [" Good  day.\t"], "ja": ["\u3000こんにちは。"]})
    assert texts_of(corpus) == {"en": ["Good  day."], "ja": ["こんにちは。"]}


def test_selecting_keeps_the_chosen_languages_and_first_sentences():
    corpus = ParallelCorpus(TEXTS, name="mine").select(["ja", "en"], limit=2)
    assert texts_of(corpus) == {"ja": JAPANESE[:2], "en": ENGLISH[:2]}
    assert corpus.name == "mine"
    assert texts_of(ParallelCorpus(TEXTS).select()) == TEXTS


def test_languages_that_differ_in_length_are_refused_with_their_lengths():
    message = refusal(ParallelCorpus, {"en": ENGLISH, "es": SPANISH[:2]})
    assert "en 3" in message
    assert "es 2" in message


@pytest.mark.parametrize("blank", ["", "  ", "\t", "\u3000"])
def test_an_empty_sentence_is_refused_with_its_language_and_number(blank):
    message = refusal(ParallelCorpus, {"en": ENGLISH, "es": [SPANISH[0], blank, SPANISH[2]]})
    assert "sentence 2 in es" in message


@pytest.mark.parametrize("value", [None, 3])
def test_a_sentence_that_is_no_text_is_refused_with_its_language_and_number(value):
    message = refusal(ParallelCorpus, {"en": ENGLISH, "es": [SPANISH[0], value, SPANISH[2]]})
    assert "sentence 2 in es" in message


@pytest.mark.parametrize("texts", [{}, {"en": []}, {"en": ENGLISH, "es": []}])
def test_a_corpus_without_sentences_is_refused(texts):
    assert "expected sentences" in refusal(ParallelCorpus, texts)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit):
    assert f"limit is {limit}" in refusal(ParallelCorpus, TEXTS, limit=limit)


def test_a_limit_beyond_the_corpus_keeps_all_of_it():
    assert len(ParallelCorpus(TEXTS, limit=100)) == 3


def test_an_unknown_language_is_refused_with_the_nearest_one():
    message = refusal(ParallelCorpus(TEXTS).__getitem__, "esp")
    assert "'esp'" in message
    assert "did you mean 'es'" in message
    assert "en, es, ja" in message
    assert "did you mean" not in refusal(ParallelCorpus(TEXTS).__getitem__, "zh")


# Text files


def test_a_mapping_of_files_is_read_under_its_own_codes(folder):
    corpus = ParallelCorpus.from_files({"eng": folder / "en.txt", "spa": str(folder / "es.txt")})
    assert texts_of(corpus) == {"eng": ENGLISH, "spa": SPANISH}


@pytest.mark.parametrize("kind", [str, Path])
def test_a_folder_gives_a_language_for_each_text_file(folder, kind):
    corpus = ParallelCorpus.from_files(kind(folder))
    assert texts_of(corpus) == TEXTS
    assert str(folder) in corpus.name


def test_languages_and_limit_choose_from_files(folder):
    corpus = ParallelCorpus.from_files(folder, languages=["ja", "en"], limit=2)
    assert texts_of(corpus) == {"ja": JAPANESE[:2], "en": ENGLISH[:2]}


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_line_endings_and_a_byte_order_mark_leave_no_trace(tmp_path, ending, encoding):
    path = write_lines(tmp_path / "ja.txt", JAPANESE, ending=ending, encoding=encoding)
    assert texts_of(ParallelCorpus.from_files({"ja": path})) == {"ja": JAPANESE}


def test_the_last_line_needs_no_ending(tmp_path):
    path = tmp_path / "es.txt"
    path.write_text("\n".join(SPANISH), "utf-8")
    assert ParallelCorpus.from_files({"es": path})["es"] == SPANISH


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c"])
def test_only_line_endings_end_a_line(tmp_path, inside):
    lines = [f"Good{inside}day.", *ENGLISH[1:]]
    path = write_lines(tmp_path / "en.txt", lines)
    assert ParallelCorpus.from_files({"en": path})["en"] == lines
    rows = write_lines(tmp_path / "rows.jsonl", [f'{{"en": "Good{inside}day."}}'])
    if inside >= " ":  # JSON lets no control character stand unescaped
        assert ParallelCorpus.from_jsonl(rows)["en"] == lines[:1]


def test_files_that_differ_in_length_are_refused_with_their_lengths(folder):
    write_lines(folder / "es.txt", SPANISH[:2])
    message = refusal(ParallelCorpus.from_files, folder)
    assert "en 3" in message
    assert "es 2" in message


def test_an_empty_line_is_refused_with_its_file_language_and_line(folder):
    write_lines(folder / "es.txt", [*SPANISH[:2], ""])
    message = refusal(ParallelCorpus.from_files, folder)
    assert str(folder) in message
    assert "sentence 3 in es" in message


def test_an_empty_file_is_refused_by_language(folder):
    (folder / "es.txt").write_bytes(b"")
    assert "'es': 0" in refusal(ParallelCorpus.from_files, folder)


def test_a_file_that_is_not_utf8_is_refused_by_name(folder):
    (folder / "es.txt").write_bytes("Buenos días.\nA\nB\n".encode("latin-1"))
    message = refusal(ParallelCorpus.from_files, folder)
    assert str(folder / "es.txt") in message
    assert "UTF-8" in message


def test_a_missing_file_is_refused_by_name(folder):
    paths = {"en": folder / "en.txt", "fr": folder / "fr.txt"}
    assert f"{folder / 'fr.txt'}: no such file" in refusal(ParallelCorpus.from_files, paths)


def test_a_missing_folder_is_refused_by_name(tmp_path):
    path = tmp_path / "missing"
    assert f"{path}: no such folder" in refusal(ParallelCorpus.from_files, path)


def test_a_folder_without_text_files_is_refused_by_name(tmp_path):
    assert f"{tmp_path}: no .txt file" in refusal(ParallelCorpus.from_files, tmp_path)


def test_a_language_that_no_file_has_is_refused_with_the_nearest_one(folder):
    message = refusal(ParallelCorpus.from_files, folder, languages=["en", "jap"])
    assert "'jap'" in message
    assert "did you mean 'ja'" in message


# JSON lines


def test_rows_are_read_by_the_languages_of_the_first(tmp_path):
    path = write_rows(
        tmp_path / "rows.jsonl", [{"id": index} | row for index, row in enumerate(rows_of(TEXTS))]
    )
    corpus = ParallelCorpus.from_jsonl(path)
    assert texts_of(corpus) == TEXTS
    assert corpus.name == str(path)


def test_languages_and_limit_choose_from_rows(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", [row | {"n": 3} for row in rows_of(TEXTS)])
    corpus = ParallelCorpus.from_jsonl(path, languages=["ja", "en"], limit=2)
    assert texts_of(corpus) == {"ja": JAPANESE[:2], "en": ENGLISH[:2]}


@pytest.mark.parametrize(
    "broken", ['{"en": "It rains."', "{'en': 'It rains.'}", '["It rains."]', '"It rains."', "3"]
)
def test_a_line_that_is_no_json_object_is_refused_with_its_number(tmp_path, broken):
    good = json.dumps({"en": "Good day."})
    path = write_lines(tmp_path / "rows.jsonl", [good, "", broken, good])
    message = refusal(read_jsonl, path)
    assert f"{path}, line 3" in message
    assert message == refusal(ParallelCorpus.from_jsonl, path)


def test_a_row_that_lacks_a_language_is_refused_with_its_number(tmp_path):
    rows = rows_of(TEXTS)
    del rows[1]["es"]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    message = refusal(ParallelCorpus.from_jsonl, path)
    assert f"{path}, row 2" in message
    assert "'es'" in message


@pytest.mark.parametrize("value", [None, 3, ["Llueve."]])
def test_a_row_whose_sentence_is_no_text_is_refused_as_such(tmp_path, value):
    rows = rows_of(TEXTS)
    rows[2]["es"] = value
    path = write_rows(tmp_path / "rows.jsonl", rows)
    message = refusal(ParallelCorpus.from_jsonl, path)
    assert f"{path}: sentence 3 in es" in message
    assert "did you mean 'es'" not in message, "the language is there; its text is not"


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_a_file_without_rows_is_refused_by_name(tmp_path, content):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    assert f"{path}: no rows" in refusal(ParallelCorpus.from_jsonl, path)


def test_a_missing_jsonl_file_is_refused_by_name(tmp_path):
    path = tmp_path / "rows.jsonl"
    assert f"{path}: no such file" in refusal(ParallelCorpus.from_jsonl, path)


# Hub data sets, by the builder that reads local files


@pytest.fixture
def from_local_hub(tmp_path):
    """ParallelCorpus.from_hub over given rows, with a cache of its own."""
    pytest.importorskip("datasets")

    def load(rows: list[dict], columns: dict[str, str], **kwargs) -> ParallelCorpus:
        path = write_rows(tmp_path / "rows.jsonl", rows)
        return ParallelCorpus.from_hub(
            "json", columns, data_files=str(path), cache_dir=str(tmp_path / "cache"), **kwargs
        )

    return load


@pytest.mark.parametrize("limit", [None, 2, 100])
@pytest.mark.parametrize("nested", [False, True])
def test_columns_of_a_hub_data_set_become_languages(from_local_hub, nested, limit):
    rows = rows_of(TEXTS)
    columns = {"spa": "es", "eng": "en"}
    if nested:
        rows = [{"id": index, "translation": row} for index, row in enumerate(rows)]
        columns = {language: f"translation.{column}" for language, column in columns.items()}
    corpus = from_local_hub(rows, columns, limit=limit)
    assert texts_of(corpus) == {"spa": SPANISH[:limit], "eng": ENGLISH[:limit]}
    assert corpus.name == "json"


@pytest.mark.parametrize(
    ("columns", "wrong"),
    [({"en": "english"}, "english"), ({"en": "en", "es": "translation.xx"}, "xx")],
    ids=["column", "nested"],
)
def test_a_column_that_is_not_there_is_refused_by_name(from_local_hub, columns, wrong):
    rows = [row | {"translation": row} for row in rows_of(TEXTS)]
    assert wrong in refusal(from_local_hub, rows, columns)


def test_a_hub_sentence_that_is_missing_is_refused_with_its_number(from_local_hub):
    rows = rows_of(TEXTS)
    rows[1]["es"] = None
    assert "sentence 2 in es" in refusal(from_local_hub, rows, {"en": "en", "es": "es"})


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused_for_hub_data_too(from_local_hub, limit):
    message = refusal(from_local_hub, rows_of(TEXTS), {"en": "en"}, limit=limit)
    assert f"limit is {limit}" in message


def test_a_hub_data_set_that_cannot_be_loaded_is_refused_by_name(tmp_path):
    pytest.importorskip("datasets")
    message = refusal(
        ParallelCorpus.from_hub,
        "json",
        {"en": "en"},
        data_files=str(tmp_path / "missing.jsonl"),
        cache_dir=str(tmp_path / "cache"),
    )
    assert message.startswith("json: could not be loaded")


def test_without_the_package_datasets_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    message = refusal(ParallelCorpus.from_hub, "json", {"en": "en"})
    assert "pip install 'carot[eval]'" in message


# NTREX


def test_ntrex_is_read_in_its_own_layout(tmp_path):
    write_lines(tmp_path / "newstest2019-src.eng.txt", ENGLISH)
    write_lines(tmp_path / "newstest2019-ref.spa.txt", SPANISH)
    write_lines(tmp_path / "newstest2019-ref.jpn.txt", JAPANESE)
    write_lines(tmp_path / "newstest2019-ref.eng-GB.txt", ["A", "B", "C"])
    corpus = ParallelCorpus.from_ntrex(tmp_path)
    assert texts_of(corpus) == TEXTS
    assert "NTREX" in corpus.name
    by_code = ParallelCorpus.from_ntrex(tmp_path, ["spa", "eng-GB", "en"], limit=2)
    assert texts_of(by_code) == {"spa": SPANISH[:2], "eng-GB": ["A", "B"], "en": ENGLISH[:2]}
    message = refusal(ParallelCorpus.from_ntrex, tmp_path, ["en", "sw"])
    assert "'sw'" in message
    assert "en, es, ja" in message


def test_a_missing_ntrex_folder_is_refused_by_name(tmp_path):
    path = tmp_path / "NTREX-128"
    assert f"{path}: no such folder" in refusal(ParallelCorpus.from_ntrex, path)


def test_the_real_ntrex_is_read_whole(shared_data):
    corpus = ParallelCorpus.from_ntrex(shared_data / "ntrex")
    assert len(corpus) == 1997
    assert corpus.languages == list(NTREX_CODES)
    assert len(set(map(tuple, texts_of(corpus).values()))) == len(corpus.languages)


def test_languages_and_limit_choose_from_the_real_ntrex(shared_data):
    folder = shared_data / "ntrex"
    corpus = ParallelCorpus.from_ntrex(folder, ["en", "es", "zh"], limit=5)
    for language, name in (("en", "src.eng"), ("es", "ref.spa"), ("zh", "ref.zho-CN")):
        raw = (folder / f"newstest2019-{name}.txt").read_bytes().decode("utf-8-sig")
        assert corpus[language] == [line.strip() for line in raw.split("\n")[:5]]


# The bundled sentences


def test_the_bundled_corpus_is_large_enough_and_speaks_many_languages():
    corpus = ParallelCorpus.bundled()
    assert len(corpus) >= 200
    assert len(corpus.languages) >= 10
    assert set(corpus.languages) >= {"en", "es", "fr", "de", "ru", "ja", "zh", "ar", "hi", "sw"}
    assert corpus.name == "bundled"


def test_languages_and_limit_choose_from_the_bundled_corpus():
    whole = ParallelCorpus.bundled()
    corpus = ParallelCorpus.bundled(["sw", "en"], limit=7)
    assert texts_of(corpus) == {"sw": whole["sw"][:7], "en": whole["en"][:7]}


def test_no_bundled_sentence_comes_twice_nor_untranslated():
    texts = texts_of(ParallelCorpus.bundled())
    for language, sentences in texts.items():
        assert len({sentence.casefold() for sentence in sentences}) == len(sentences), language
        if language != "en":
            assert not set(sentences) & set(texts["en"]), language


def test_no_fact_prompt_stands_in_a_bundled_sentence():
    corpus = ParallelCorpus.bundled()
    facts = read_jsonl(Path(str(files("carot") / "data" / "facts.jsonl")))
    compared = 0
    for fact in facts:
        for language in set(fact["prompts"]) & set(corpus.languages):
            prompt = fact["prompts"][language].strip().casefold()
            assert len(prompt) > 3
            for sentence in corpus[language]:
                compared += 1
                assert prompt not in sentence.casefold(), f"{fact['id']} in {language}: {sentence}"
    assert compared > 10 * 100 * 200  # languages, facts, sentences
