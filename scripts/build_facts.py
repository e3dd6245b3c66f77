"""Build the multilingual factual-question set ``carot/data/facts.jsonl``.

Each line is one fact about one country, asked in 13 languages: a prompt that ends just before the
answer, the candidate continuations (the same entities in the same order in every language) and
the index of the right one::

    {"id": "capital-FR", "relation": "capital", "prompts": {"en": "...", ...},
     "candidates": {"en": ["...", ...], ...}, "answer": 3}

Prompts carry no trailing space; whoever joins prompt and candidate puts the space that the
language needs.

Source: the names of countries, cities, languages and continents come from the Unicode Common
Locale Data Repository (CLDR) through Babel, under the Unicode License v3
(https://www.unicode.org/license.txt). The prompt templates, the currency unit names and the
choice of facts are this project's own. The output depends only on this file and on the CLDR data
in Babel (2.19 for the file in the repository): building twice gives identical bytes.

Run::

    python scripts/build_facts.py                  # write carot/data/facts.jsonl
    python scripts/build_facts.py --output F       # write somewhere else
    python scripts/build_facts.py --check          # exit 1 if the file differs from a fresh build
"""

from __future__ import annotations

import argparse
import json
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple, TypedDict

from babel import Locale

DEFAULT_OUTPUT = Path(__file__).resolve().parents[1] / "carot" / "data" / "facts.jsonl"
SEED = 20240601
LANGS = ("en", "es", "fr", "de", "ru", "ja", "zh", "ar", "hi", "sw", "tr", "vi", "ko")
LATIN_SCRIPT = frozenset({"en", "es", "fr", "de", "sw", "tr", "vi"})


def _pairs(text: str) -> dict[str, str]:
    """Read a compact ``KEY=value KEY=value`` table."""
    table = dict(item.split("=") for item in text.split())
    if len(table) != len(text.split()):
        raise ValueError(f"a key is given twice in the table: {text}")
    return table


# Country (ISO 3166) to the time zone named after its capital.
CAPITALS = _pairs(
    "AF=Asia/Kabul AO=Africa/Luanda AT=Europe/Vienna AZ=Asia/Baku BD=Asia/Dhaka "
    "BE=Europe/Brussels CO=America/Bogota CU=America/Havana CZ=Europe/Prague DE=Europe/Berlin "
    "DK=Europe/Copenhagen EG=Africa/Cairo ES=Europe/Madrid ET=Africa/Addis_Ababa "
    "FI=Europe/Helsinki FR=Europe/Paris GR=Europe/Athens HR=Europe/Zagreb HU=Europe/Budapest "
    "IE=Europe/Dublin IQ=Asia/Baghdad IR=Asia/Tehran IT=Europe/Rome JO=Asia/Amman JP=Asia/Tokyo "
    "KE=Africa/Nairobi KH=Asia/Phnom_Penh KR=Asia/Seoul LB=Asia/Beirut LT=Europe/Vilnius "
    "LV=Europe/Riga NO=Europe/Oslo PE=America/Lima PL=Europe/Warsaw PT=Europe/Lisbon "
    "RO=Europe/Bucharest RS=Europe/Belgrade RU=Europe/Moscow RW=Africa/Kigali SA=Asia/Riyadh "
    "SE=Europe/Stockholm SN=Africa/Dakar TH=Asia/Bangkok UG=Africa/Kampala "
    "UY=America/Montevideo ZM=Africa/Lusaka ZW=Africa/Harare"
)
# Country to its only official language at the national level.
OFFICIAL_LANGUAGES = _pairs(
    "AO=pt AT=de BJ=fr BR=pt CU=es DK=da EG=ar GH=en GR=el HN=es HU=hu IR=fa IS=is JO=ar JP=ja "
    "KH=km LI=de MZ=pt NG=en PL=pl RO=ro SE=sv SM=it SN=fr VN=vi"
)
# Country to a key of CURRENCY_NAMES.
CURRENCIES = _pairs(
    "BR=real BY=ruble CH=franc CL=peso CO=peso EC=us_dollar FI=euro HU=forint IE=euro IN=rupee "
    "JO=dinar JP=yen KE=shilling KR=won MA=dirham MX=peso NG=naira NP=rupee PK=rupee PL=zloty "
    "RU=ruble SE=krona TH=baht TN=dinar UG=shilling ZA=rand"
)
# Country to the UN M49 code of its continent (142 Asia, 150 Europe, 002 Africa, 005 South
# America, 009 Oceania).
CONTINENTS = _pairs(
    "BR=005 FJ=009 GH=002 HU=150 IN=142 JP=142 KE=002 NG=002 NZ=009 PE=005 PL=150 SE=150 UY=005 "
    "VN=142 VU=009"
)
# fmt: off
# Unit names in the order of LANGS, in the form that continues the currency prompt; the adjective
# of the country is left out, since it would give the answer away.
CURRENCY_NAMES = {
    "baht": "baht|baht|le baht|Baht|бат|バーツ|铢|البات|बाट|baht|baht|baht|바트",
    "dinar": "dinar|dinar|le dinar|Dinar|динар|ディナール|第纳尔|الدينار|दीनार|dinari|dinar|dinar|"
        "디나르",
    "dirham": "dirham|dírham|le dirham|Dirham|дирхам|ディルハム|迪拉姆|الدرهم|दिरहम|dirham|dirhem|"
        "dirham|디르함",
    "euro": "euro|euro|l’euro|Euro|евро|ユーロ|欧元|اليورو|यूरो|yuro|euro|euro|유로",
    "forint": "forint|forinto|le forint|Forint|форинт|フォリント|福林|الفورنت|फ़ोरिंट|forint|forint|"
        "forint|포린트",
    "franc": "franc|franco|le franc|Franken|франк|フラン|法郎|الفرنك|फ़्रैंक|faranga|frank|franc|프랑",
    "krona": "krona|corona|la couronne|Krone|крона|クローナ|克朗|الكرونة|क्रोना|krona|kron|krona|"
        "크로나",
    "naira": "naira|naira|le naira|Naira|найра|ナイラ|奈拉|النايرا|नाइरा|naira|naira|naira|나이라",
    "peso": "peso|peso|le peso|Peso|песо|ペソ|比索|البيزو|पेसो|peso|peso|peso|페소",
    "rand": "rand|rand|le rand|Rand|рэнд|ランド|兰特|الراند|रैंड|randi|rand|rand|랜드",
    "real": "real|real|le réal|Real|реал|レアル|雷亚尔|الريال|रियाल|real|real|real|헤알",
    "ruble": "ruble|rublo|le rouble|Rubel|рубль|ルーブル|卢布|الروبل|रूबल|ruble|ruble|rúp|루블",
    "rupee": "rupee|rupia|la roupie|Rupie|рупия|ルピー|卢比|الروبية|रुपया|rupia|rupi|rupee|루피",
    "shilling": "shilling|chelín|le shilling|Schilling|шиллинг|シリング|先令|الشلن|शिलिंग|shilingi|"
        "şilin|shilling|실링",
    "us_dollar": "US dollar|dólar estadounidense|le dollar américain|US-Dollar|доллар США|米ドル|"
        "美元|الدولار الأمريكي|अमेरिकी डॉलर|dola ya Marekani|ABD doları|đô la Mỹ|미국 달러",
    "won": "won|won|le won|Won|вона|ウォン|韩元|الوون|वॉन|won|won|won|원",
    "yen": "yen|yen|le yen|Yen|иена|円|日元|الين|येन|yen|yen|yên|엔",
    "zloty": "zloty|esloti|le zloty|Zloty|злотый|ズウォティ|兹罗提|الزلوتي|ज़्लॉटी|zloty|zloti|"
        "zloty|즈워티",
}

CAPITAL_PROMPTS = {
    "en": "The capital of {country} is", "es": "La capital de {country} es",
    "fr": "La capitale du pays nommé {country} est",
    "de": "Die Hauptstadt des Landes {country} heißt", "ru": "Столица страны {country} — город",
    "ja": "{country}の首都は", "zh": "{country}的首都是",
    "ar": "عاصمة {country} هي مدينة",
    "hi": "{country} की राजधानी का नाम है", "sw": "Mji mkuu wa {country} ni",
    "tr": "{country} ülkesinin başkenti", "vi": "Thủ đô của {country} là",
    "ko": "{country}의 수도는",
}
OFFICIAL_LANGUAGE_PROMPTS = {
    "en": "The official language of {country} is", "es": "El idioma oficial de {country} es el",
    "fr": "Dans le pays nommé {country}, on parle officiellement",
    "de": "Die Amtssprache des Landes {country} ist", "ru": "Официальный язык страны {country} —",
    "ja": "{country}の公用語は", "zh": "{country}的官方语言是",
    "ar": "اللغة الرسمية في {country} هي",
    "hi": "{country} की आधिकारिक भाषा का नाम है", "sw": "Lugha rasmi ya {country} ni",
    "tr": "{country} ülkesinin resmî dili", "vi": "Ngôn ngữ chính thức của {country} là",
    "ko": "{country}의 공용어는",
}
CURRENCY_PROMPTS = {
    "en": "The official currency of {country} is the",
    "es": "La moneda oficial de {country} se llama",
    "fr": "La monnaie officielle du pays nommé {country} est",
    "de": "Die Währung des Landes {country} heißt", "ru": "Денежная единица страны {country} —",
    "ja": "{country}の通貨単位は", "zh": "{country}的货币单位是",
    "ar": "العملة الرسمية في {country} هي",
    "hi": "{country} की मुद्रा का नाम है", "sw": "Sarafu rasmi ya {country} ni",
    "tr": "{country} ülkesinin para birimi", "vi": "Đơn vị tiền tệ của {country} là đồng",
    "ko": "{country}의 화폐 단위는",
}
CONTINENT_PROMPTS = {
    "en": "{country} is located in", "es": "{country} se encuentra en",
    "fr": "Le pays nommé {country} se trouve en", "de": "Das Land {country} liegt in",
    "ru": "Регион мира, где расположена страна {country}, —", "ja": "{country}がある地域は",
    "zh": "{country}位于",
    "ar": "تقع دولة {country} في قارة",
    "hi": "{country} जिस महाद्वीप में है, उसका नाम है", "sw": "Nchi ya {country} iko katika bara la",
    "tr": "{country} ülkesinin bulunduğu kıta", "vi": "{country} nằm ở",
    "ko": "{country}의 소속 대륙은",
}
# fmt: on


class Row(TypedDict):
    """One line of the output."""

    id: str
    relation: str
    prompts: dict[str, str]
    candidates: dict[str, list[str]]
    answer: int


@cache
def _locale(lang: str) -> Locale:
    return Locale.parse(lang)


def _city(zone: str, lang: str) -> str | None:
    """Name a zone's city; the zone id stands in only where the script is Latin."""
    city: str | None = _locale(lang).time_zones.get(zone, {}).get("city")
    if city is None and lang in LATIN_SCRIPT:
        return zone.rpartition("/")[2].replace("_", " ")
    return city


def _language(code: str, lang: str) -> str | None:
    return _in_sentence(_locale(lang).languages.get(code), lang)


def _territory(code: str, lang: str) -> str | None:
    return _in_sentence(_locale(lang).territories.get(code), lang)


def _currency(unit: str, lang: str) -> str | None:
    return dict(zip(LANGS, CURRENCY_NAMES[unit].split("|"), strict=True))[lang]


def _in_sentence(name: str | None, lang: str) -> str | None:
    """Lower the Vietnamese generic nouns, which CLDR capitalises for stand-alone use."""
    if lang == "vi" and name and name.startswith(("Tiếng ", "Châu ")):
        return name[0].lower() + name[1:]
    return name


class Relation(NamedTuple):
    """The facts of a relation, its prompts, and how an answer is named in a language."""

    golds: dict[str, str]
    prompts: dict[str, str]
    name: Callable[[str, str], str | None]
    n_candidates: int
    n_facts: int


RELATIONS = {
    "capital": Relation(CAPITALS, CAPITAL_PROMPTS, _city, 8, 47),
    "continent": Relation(CONTINENTS, CONTINENT_PROMPTS, _territory, 5, 15),
    "currency": Relation(CURRENCIES, CURRENCY_PROMPTS, _currency, 8, 26),
    "official_language": Relation(OFFICIAL_LANGUAGES, OFFICIAL_LANGUAGE_PROMPTS, _language, 8, 25),
}


def _clash(first: str, second: str) -> bool:
    """Tell whether one name equals or begins the other, whatever the case."""
    first, second = first.casefold(), second.casefold()
    return first.startswith(second) or second.startswith(first)


def _build_relation(relation_name: str) -> list[Row]:
    relation = RELATIONS[relation_name]
    names: dict[str, dict[str, str]] = {}
    for entity in sorted(set(relation.golds.values())):
        named = {lang: name for lang in LANGS if (name := relation.name(entity, lang))}
        if len(named) == len(LANGS):  # an answer without a name in some language is dropped
            names[entity] = named
    rows: list[Row] = []
    for country, gold in relation.golds.items():
        if gold not in names:
            continue
        rng = Random(f"{SEED}:{relation_name}-{country}")
        chosen = [gold]
        for entity in rng.sample(list(names), len(names)):
            clashes = (_clash(names[entity][k], names[c][k]) for c in chosen for k in LANGS)
            if len(chosen) < relation.n_candidates and not any(clashes):
                chosen.append(entity)
        rng.shuffle(chosen)
        row: Row = {
            "id": f"{relation_name}-{country}",
            "relation": relation_name,
            "prompts": {
                lang: relation.prompts[lang].format(country=_locale(lang).territories[country])
                for lang in LANGS
            },
            "candidates": {lang: [names[entity][lang] for entity in chosen] for lang in LANGS},
            "answer": chosen.index(gold),
        }
        rows.append(row)
    return rows


def _verify_language(row: Row, lang: str) -> None:
    prompt, candidates = row["prompts"][lang], row["candidates"][lang]
    country = _locale(lang).territories[row["id"].rpartition("-")[2]]
    if any(mark in country for mark in ("(", "\uff08", "[", " - ", " \u2013 ", "&")):
        raise ValueError(f"the country name {country!r} does not fit into a sentence")
    for text in (prompt, *candidates):
        clean = text == text.strip() and text.isprintable() and "{" not in text
        if not text or not clean or not unicodedata.is_normalized("NFC", text):
            raise ValueError(f"malformed text {text!r}")
    if len(candidates) != RELATIONS[row["relation"]].n_candidates:
        raise ValueError(f"{len(candidates)} candidates")
    for i, candidate in enumerate(candidates):
        if any(_clash(candidate, other) for other in candidates[:i]):
            raise ValueError(f"{candidate!r} equals, begins or continues another candidate")
    gold = candidates[row["answer"]].casefold()
    if gold in prompt.casefold():
        raise ValueError(f"the prompt {prompt!r} contains its answer")
    if row["relation"] == "capital" and country.casefold() in gold:
        raise ValueError(f"the answer {gold!r} contains the country")


def verify_rows(rows: list[Row]) -> None:
    """Raise ValueError if the rows break what the file promises."""
    counts = Counter(row["relation"] for row in rows)
    for relation_name, relation in RELATIONS.items():
        if counts[relation_name] != relation.n_facts:
            raise ValueError(
                f"{relation_name}: {counts[relation_name]} facts, expected {relation.n_facts}"
            )
    for row in rows:
        for lang in LANGS:
            try:
                _verify_language(row, lang)
            except (KeyError, ValueError) as error:
                raise ValueError(f"{row['id']} in {lang}: {error}") from error
    for lang in LANGS:
        if len({row["prompts"][lang] for row in rows}) != len(rows):
            raise ValueError(f"{lang}: two facts share a prompt")


def build() -> bytes:
    """Build and verify all facts; return them as JSON lines, sorted by id."""
    rows = [row for relation_name in RELATIONS for row in _build_relation(relation_name)]
    rows.sort(key=lambda row: row["id"])
    verify_rows(rows)
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def main(argv: list[str] | None = None) -> int:
    """Write the file, or check it; return the exit status."""
    parser = argparse.ArgumentParser(description="Build the multilingual factual-question set.")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help="file to write")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if the file is out of date"
    )
    args = parser.parse_args(argv)
    output: Path = args.output
    content = build()
    if args.check:
        if output.is_file() and output.read_bytes() == content:
            return 0
        print(f"{output} differs from a fresh build", file=sys.stderr)
        return 1
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(content)
    print(f"wrote {len(content.splitlines())} facts to {output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
