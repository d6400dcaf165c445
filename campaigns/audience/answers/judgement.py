"""Judges a recipient's text: it surely asks to stop, perhaps does, or says something else.

The phrases are data (phrases.toml). A text surely asks if phrases that mean *stop*, and fillers that change nothing
beside them, cover all of it in one language. Everything else is for a person. Only what stands above the first quoted
line counts as sure: mail programs break quoted lines badly. A name in a paragraph of its own below is a signature.
Takes bounded time for any text.
"""

import re
import tomllib
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Literal

TABLE = Path(__file__).with_name("phrases.toml")
MOST = 8_000  # characters read
MOST_TOKENS = 16  # of a text that surely asks
INTRODUCTION = 3  # lines at most of "On ... wrote:"
AnswerMeaning = Literal["stop", "near", "other"]
Phrase = tuple[str, ...]

# Chinese, Japanese and Thai have no blanks between words: each sign is a token, so that phrases are found within.
_WITHOUT_BLANKS = "\u0e00-\u0e7f\u3005-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_WITHOUT_BLANKS}]|[^\W_{_WITHOUT_BLANKS}]+")
_APOSTROPHES = re.compile("(?<=\\w)['’ʼ´`](?=\\w)")
_SIGNATURE = re.compile(r"--\s*")
_NAME = re.compile(r"[^\W\d_][\w.'’&,-]*(?: +[\w.'’&,-]+){0,3}")  # one to four words on a line
_PARAGRAPHS = re.compile(r"\n\s*\n")
PARTICLES = frozenset(("&", "van", "von", "der", "de", "du", "da", "di", "del", "dos", "la", "zu"))
MOST_LINES, MOST_LINE = 3, 40  # of a typed name, with a greeting and a company; characters
_QUESTION = re.compile(r"[?؟]\W*\Z")
_ALTERNATIVES = re.compile(r"\(([^()]*)\)")
_REPEATED = re.compile(r"(.)\1{2,}")
# Letters of other scripts that look like Latin ones, in lower case.
_ALIKE = str.maketrans("аеорсухѕіјԁһԛԝкмтοαερτυικν", "aeopcyxsijdhqwkmtoaeptuikv")


@dataclass(frozen=True, slots=True)
class LanguagePhrases:
    """The phrases of a language together with those of no language."""

    whole: frozenset[Phrase]
    stop: frozenset[Phrase]
    fillers: frozenset[Phrase]


@dataclass(frozen=True, slots=True)
class AnswerPhrases:
    """All words. near: by their first word. signs: such as emojis. no_names: words that turn a wish round.

    The rest are beginnings and ends of lines.
    """

    languages: tuple[LanguagePhrases, ...]
    near: Mapping[str, frozenset[Phrase]]
    signs: tuple[str, ...]
    no_names: frozenset[str]
    signatures: tuple[str, ...]
    quotes: tuple[str, ...]
    introductions: tuple[str, ...]
    wrote: tuple[str, ...]


def judge_answer(text: str, own: Iterable[str] = ()) -> AnswerMeaning:
    """Judge a text without its quoted parts and signature. own: further texts that ask to stop as a whole.

    A question is at most near, and so is what stands between or after quoted lines.
    """
    above, said = _split_quote(text)
    known = answer_phrases()
    above = _cut_off_name(above, known)
    tokens = split_text(said)
    wishes = set(map(split_text, own))
    if _is_wish(split_text(above), wishes, known) and not _QUESTION.search(unicodedata.normalize("NFKC", above)):
        return "stop"
    if any(sign in said for sign in known.signs):
        return "near"
    readings = {tokens, split_text(above), _read_loosely(tokens)}
    if any(_is_wish(one, wishes, known) or _has_near(one, known.near) for one in readings):
        return "near"
    return "other"


def _cut_off_name(text: str, known: AnswerPhrases) -> str:
    """Return the first paragraph if all behind it is a name as people type below a letter, else the whole text."""
    first, *rest = _PARAGRAPHS.split(text)
    lines = [line for one in rest for line in one.split("\n")]
    if not rest or len(lines) > MOST_LINES or not any(_is_name(line, known) for line in lines):
        return text
    return first if all(_is_name(line, known) or _is_filler(split_text(line), known) for line in lines) else text


def _is_name(line: str, known: AnswerPhrases) -> bool:
    """Tell if each word of a line begins with a capital letter, and none turns a wish round."""
    parts = line.split()
    if len(line) > MOST_LINE or not _NAME.fullmatch(line) or not parts[0][0].isupper():
        return False
    if not all(one[0].isupper() or one in PARTICLES for one in parts):
        return False
    tokens = split_text(line)
    return known.no_names.isdisjoint(tokens) and not _has_near(tokens, known.near)


def _is_filler(tokens: Phrase, known: AnswerPhrases) -> bool:
    return any(_do_tokens_ask(tokens, replace(one, whole=one.fillers, stop=one.fillers)) for one in known.languages)


def _is_wish(tokens: Phrase, own: Collection[Phrase], known: AnswerPhrases) -> bool:
    return bool(tokens) and (tokens in own or any(_do_tokens_ask(tokens, one) for one in known.languages))


def _read_loosely(tokens: Phrase) -> Phrase:
    """Return the words as a reader takes "S T O P", "stopppp", "STOP123" and look-alikes of Latin letters."""
    read: list[str] = []
    spelled = False
    for token in tokens:
        word = _REPEATED.sub(r"\1", token.translate(_ALIKE)).strip("0123456789")
        if spelled and len(word) == 1:
            read[-1] += word
        elif word:
            read.append(word)
            spelled = len(word) == 1
    return tuple(read)


def split_text(text: str) -> Phrase:
    """Return a text's words, in lower case without accents, signs, emojis and apostrophes."""
    letters = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text[:MOST]).casefold())
    kept = "".join(one for one in letters if unicodedata.category(one) not in ("Mn", "Cf"))
    return tuple(_WORD.findall(_APOSTROPHES.sub("", kept)))


def answer_itself(text: str) -> str:
    """Return the writer's own text, without quoted mails and signature; of a quote alone, nothing."""
    return _split_quote(text)[1]


def _split_quote(text: str) -> tuple[str, str]:
    """Return the writer's own text above the first quote, and all of it."""
    lines = text[:MOST].splitlines()
    known = answer_phrases()
    kept: list[str] = []
    above: int | None = None
    for at, line in enumerate(lines):
        bare = line.strip().casefold()
        is_quoted, is_introduction = bare.startswith(">"), _is_introduction(lines, at, known)
        if is_quoted or is_introduction:
            above = len(kept) if above is None else above
            if is_quoted or any(one.lstrip().startswith(">") for one in lines[at:]):
                continue  # what follows the quote may be the answer
            break
        if _SIGNATURE.fullmatch(bare) or bare.startswith((*known.signatures, *known.quotes)):
            break
        kept.append(line.strip())
    return "\n".join(kept[:above]).strip(), "\n".join(kept).strip()


def _is_introduction(lines: list[str], at: int, known: AnswerPhrases) -> bool:
    """Tell if a line is part of "On Monday, somebody wrote:", which may be broken into several lines."""
    bare = [line.strip().casefold() for line in lines[max(0, at - INTRODUCTION + 1) : at + INTRODUCTION]]
    here = min(at, INTRODUCTION - 1)
    if _ends_introduction(bare[here], known):
        return True
    for first in range(here + 1):
        if bare[first].startswith(known.introductions):
            for last in range(here, min(first + INTRODUCTION, len(bare))):
                if _ends_introduction(" ".join(bare[first : last + 1]), known):
                    return True
    return False


def _ends_introduction(text: str, known: AnswerPhrases) -> bool:
    return text.endswith(":") and any(word in text for word in known.wrote)


def _do_tokens_ask(tokens: Phrase, known: LanguagePhrases) -> bool:
    """Tell if the words ask as a whole, or phrases that ask and fillers cover them."""
    if tokens in known.whole:
        return True
    if len(tokens) > MOST_TOKENS:
        return False
    reached = {(0, False)}  # number of words covered so far, and True if a phrase among them asks
    for start in range(len(tokens)):
        for asked in (True, False):
            if (start, asked) in reached:
                for end in range(start + 1, len(tokens) + 1):
                    if tokens[start:end] in known.stop:
                        reached.add((end, True))
                    elif tokens[start:end] in known.fillers:
                        reached.add((end, asked))
    return (len(tokens), True) in reached


def _has_near(tokens: Phrase, near: Mapping[str, frozenset[Phrase]]) -> bool:
    return any(
        tokens[at : at + len(phrase)] == phrase
        for at, word in enumerate(tokens)
        for phrase in near.get(word, frozenset())
    )


@cache
def answer_phrases() -> AnswerPhrases:
    """Read phrases.toml, once in a process."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    cut, common = table.pop("cut"), table.pop("any")
    languages = (common, *table.values())
    near: dict[str, set[Phrase]] = {}
    signs = []
    for text in (text for language in languages for text in language.get("near", ())):
        if phrase := split_text(text):
            near.setdefault(phrase[0], set()).add(phrase)
        else:
            signs.append(text)
    kinds = ("whole", "stop", "fillers")
    return AnswerPhrases(
        tuple(LanguagePhrases(*(_known_phrases(common, one, kind) for kind in kinds)) for one in languages),
        {word: frozenset(phrases) for word, phrases in near.items()},
        tuple(signs),
        frozenset(token for text in cut["no_names"] for token in split_text(text)),
        *(tuple(cut[name]) for name in ("signatures", "quotes", "introductions", "wrote")),
    )  # fmt: skip


def _known_phrases(common: dict[str, list[str]], own: dict[str, list[str]], kind: str) -> frozenset[Phrase]:
    texts = (text for one in (common, own) for text in one.get(kind, ()))
    return frozenset(split_text(one) for text in texts for one in expand_alternatives(text))


def expand_alternatives(text: str) -> Iterator[str]:
    """Yield a phrase with each choice of its alternatives: "no (more|) mails" is "no more mails" and "no mails"."""
    parts = _ALTERNATIVES.split(text)  # every second one is between brackets
    choices = (part.split("|") if number % 2 else [part] for number, part in enumerate(parts))
    return map("".join, product(*choices))
