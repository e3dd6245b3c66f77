"""Languages by ISO 639-1 code: their English names, and NLLB's codes."""

from __future__ import annotations

from carot.languages import base_language

_TABLE = """
af Afrikaans afr_Latn | am Amharic amh_Ethi | ar Arabic arb_Arab | as Assamese asm_Beng
az Azerbaijani azj_Latn | be Belarusian bel_Cyrl | bg Bulgarian bul_Cyrl | bn Bengali ben_Beng
bo Tibetan bod_Tibt | bs Bosnian bos_Latn | ca Catalan cat_Latn | ceb Cebuano ceb_Latn
ckb Kurdish ckb_Arab | cs Czech ces_Latn | cy Welsh cym_Latn | da Danish dan_Latn
de German deu_Latn | el Greek ell_Grek | en English eng_Latn | eo Esperanto epo_Latn
es Spanish spa_Latn | et Estonian est_Latn | eu Basque eus_Latn | fa Persian pes_Arab
fi Finnish fin_Latn | fil Filipino tgl_Latn | fr French fra_Latn | ga Irish gle_Latn
gl Galician glg_Latn | gu Gujarati guj_Gujr | ha Hausa hau_Latn | he Hebrew heb_Hebr
hi Hindi hin_Deva | hr Croatian hrv_Latn | ht Haitian hat_Latn | hu Hungarian hun_Latn
hy Armenian hye_Armn | id Indonesian ind_Latn | ig Igbo ibo_Latn | is Icelandic isl_Latn
it Italian ita_Latn | ja Japanese jpn_Jpan | jv Javanese jav_Latn | ka Georgian kat_Geor
kk Kazakh kaz_Cyrl | km Khmer khm_Khmr | kn Kannada kan_Knda | ko Korean kor_Hang
ku Kurdish kmr_Latn | ky Kyrgyz kir_Cyrl | lb Luxembourgish ltz_Latn | lg Ganda lug_Latn
ln Lingala lin_Latn | lo Lao lao_Laoo | lt Lithuanian lit_Latn | lv Latvian lvs_Latn
mg Malagasy plt_Latn | mi Maori mri_Latn | mk Macedonian mkd_Cyrl | ml Malayalam mal_Mlym
mn Mongolian khk_Cyrl | mr Marathi mar_Deva | ms Malay zsm_Latn | mt Maltese mlt_Latn
my Burmese mya_Mymr | nb Norwegian nob_Latn | ne Nepali npi_Deva | nl Dutch nld_Latn
nn Norwegian nno_Latn | no Norwegian nob_Latn | ny Chichewa nya_Latn | or Odia ory_Orya
pa Punjabi pan_Guru | pl Polish pol_Latn | ps Pashto pbt_Arab | pt Portuguese por_Latn
qu Quechua quy_Latn | ro Romanian ron_Latn | ru Russian rus_Cyrl | rw Kinyarwanda kin_Latn
sa Sanskrit san_Deva | sd Sindhi snd_Arab | si Sinhala sin_Sinh | sk Slovak slk_Latn
sl Slovene slv_Latn | sm Samoan smo_Latn | sn Shona sna_Latn | so Somali som_Latn
sq Albanian als_Latn | sr Serbian srp_Cyrl | st Sotho sot_Latn | su Sundanese sun_Latn
sv Swedish swe_Latn | sw Swahili swh_Latn | ta Tamil tam_Taml | te Telugu tel_Telu
tg Tajik tgk_Cyrl | th Thai tha_Thai | ti Tigrinya tir_Ethi | tk Turkmen tuk_Latn
tl Tagalog tgl_Latn | tn Tswana tsn_Latn | tr Turkish tur_Latn | ts Tsonga tso_Latn
tt Tatar tat_Cyrl | ug Uyghur uig_Arab | uk Ukrainian ukr_Cyrl | ur Urdu urd_Arab
uz Uzbek uzn_Latn | vi Vietnamese vie_Latn | wo Wolof wol_Latn | xh Xhosa xho_Latn
yi Yiddish ydd_Hebr | yo Yoruba yor_Latn | yue Cantonese yue_Hant | zh Chinese zho_Hans
zh-hant Chinese zho_Hant | zh-hk Chinese zho_Hant | zh-tw Chinese zho_Hant | zu Zulu zul_Latn
"""

_ROWS = [entry.split() for line in _TABLE.splitlines() if line for entry in line.split(" | ")]

NAMES = {code: name for code, name, _ in _ROWS}
"""English names by code."""

NLLB_CODES = {code: nllb for code, _, nllb in _ROWS}
"""NLLB's codes by code."""


def lookup(table: dict[str, str], language: str) -> str | None:
    """Return the entry of a code, else that of the code without its region or script."""
    full = language.replace("_", "-").lower()
    return table.get(full) or table.get(base_language(language))
