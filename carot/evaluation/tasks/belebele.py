"""Belebele (Bandarkar et al., ACL 2024): reading comprehension in 122 language variants."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from carot.evaluation.items import Item, RankingItem, Skipped
from carot.evaluation.tasks.base import (
    Benchmark,
    RankingTask,
    cell,
    inside,
    lettered,
    multiple_choice,
    own_codes,
    sorted_out,
)

SHORT = {
    "en": "eng_Latn",
    "ar": "arb_Arab",
    "bn": "ben_Beng",
    "de": "deu_Latn",
    "el": "ell_Grek",
    "es": "spa_Latn",
    "fa": "pes_Arab",
    "fr": "fra_Latn",
    "hi": "hin_Deva",
    "id": "ind_Latn",
    "it": "ita_Latn",
    "ja": "jpn_Jpan",
    "ko": "kor_Hang",
    "nl": "nld_Latn",
    "pl": "pol_Latn",
    "pt": "por_Latn",
    "ru": "rus_Cyrl",
    "sw": "swh_Latn",
    "te": "tel_Telu",
    "th": "tha_Thai",
    "tr": "tur_Latn",
    "uk": "ukr_Cyrl",
    "ur": "urd_Arab",
    "vi": "vie_Latn",
    "yo": "yor_Latn",
    "zh": "zho_Hans",
}
"""Two-letter codes; other language variants go by their FLORES-200 code."""

OTHERS = (
    "acm_Arab afr_Latn als_Latn amh_Ethi apc_Arab arb_Latn ars_Arab ary_Arab arz_Arab asm_Beng "
    "azj_Latn bam_Latn ben_Latn bod_Tibt bul_Cyrl cat_Latn ceb_Latn ces_Latn ckb_Arab dan_Latn "
    "est_Latn eus_Latn fin_Latn fuv_Latn gaz_Latn grn_Latn guj_Gujr hat_Latn hau_Latn heb_Hebr "
    "hin_Latn hrv_Latn hun_Latn hye_Armn ibo_Latn ilo_Latn isl_Latn jav_Latn kac_Latn kan_Knda "
    "kat_Geor kaz_Cyrl kea_Latn khk_Cyrl khm_Khmr kin_Latn kir_Cyrl lao_Laoo lin_Latn lit_Latn "
    "lug_Latn luo_Latn lvs_Latn mal_Mlym mar_Deva mkd_Cyrl mlt_Latn mri_Latn mya_Mymr nob_Latn "
    "npi_Deva npi_Latn nso_Latn nya_Latn ory_Orya pan_Guru pbt_Arab plt_Latn ron_Latn shn_Mymr "
    "sin_Latn sin_Sinh slk_Latn slv_Latn sna_Latn snd_Arab som_Latn sot_Latn srp_Cyrl ssw_Latn "
    "sun_Latn swe_Latn tam_Taml tgk_Cyrl tgl_Latn tir_Ethi tsn_Latn tso_Latn urd_Latn uzn_Latn "
    "war_Latn wol_Latn xho_Latn zho_Hant zsm_Latn zul_Latn"
)

OPTIONS = ("mc_answer1", "mc_answer2", "mc_answer3", "mc_answer4")


class Belebele(Benchmark, RankingTask):
    """Belebele, all of which is a test set.

    The prompt is its authors': passage, question and options under ``P:``, ``Q:``, ``A:`` to
    ``D:``, then an answer cue. The candidates are the letters.

    Parameters
    ----------
    data : Path, optional
        The original files ``eng_Latn.jsonl``: this folder, or the one that holds it as
        ``Belebele`` or ``data``. By default the hub data set ``facebook/belebele``,
        configurations ``eng_Latn``.
    """

    name = "belebele"
    codes = SHORT | own_codes(OTHERS.split())

    def __init__(self, data: Path | None) -> None:
        super().__init__(inside(data, "Belebele", "data"))

    def path(self, folder: Path, language: str) -> Path:
        """Return ``eng_Latn.jsonl``."""
        return folder / f"{self.codes[language]}.jsonl"

    def hub(self, language: str) -> tuple[str, str | None, str]:
        """Return the configuration of a language."""
        return "facebook/belebele", self.codes[language], "test"

    def load(self, language: str) -> tuple[dict[str, Item], list[Skipped]]:
        """Load the questions of one language by the link of the passage and question number."""
        items, skipped = sorted_out(self._items(language))
        return dict(items), skipped

    def _items(self, language: str) -> Iterator[RankingItem | Skipped]:
        for number, row in enumerate(self.rows(language), 1):
            where = f"{self.where(language)}, row {number}"
            options = [cell(row, option, where) for option in OPTIONS]
            passage, question = cell(row, "flores_passage", where), cell(row, "question", where)
            gold = cell(row, "correct_answer_num", where)
            yield multiple_choice(
                f"{cell(row, 'link', where)}#{cell(row, 'question_number', where)}",
                lettered(f"P: {passage}\nQ: {question}", options, ": "),
                options,
                dict(zip("1234", "ABCD", strict=True)).get(gold, ""),
                language,
            )
