"""A logistic regression over the words of answers, for measure.py to set beside the rules. The product has rules alone.

Its features are words, the first letters of words, and codes. Settings were chosen by cross-validation over origins;
fixed steps make the same weights of the same corpus. NumPy comes with pandas.
"""

import re
from collections import Counter
from collections.abc import Sequence
from math import exp, sqrt

import numpy as np
from numpy.typing import NDArray

from tests.causes.test_corpus import OURS, Reply

CAUSES = ("recipient", "content", "us", "capacity", "vendor", "unknown")
ANSWERS_MIN = 2
"""Answers that have a word before it counts."""
PENALTY = 0.03
"""Of squared weights, in answers."""
STEPS = 30
SECOND = 0.3
"""The share of an answer that its second cause has."""
READ_MAX = 600
"""Characters that are read."""
START = 4
"""Letters of the start of a word, which inflected and related words share."""
AT_LEAST = {"content": 0.5, "vendor": 0.6}
"""The probability from which words alone give a cause. They give no cause that would pause or suppress."""
OURS_AT_LEAST = 0.9
"""The probability of *us* and *capacity* together from which a rule may not blame the recipient."""
CLEAR_CODES = frozenset({"=1.1", "=1.2", "=1.3", "=1.6", "=1.10", "=2.122"})
"""Codes of RFC 3463 that blame the recipient, whatever the words are; 2.122 is Exchange Online's."""
ANY = ""
_ADDRESS = re.compile(r"[^\s<>:;,()\"]{1,254}@[^\s<>:;,()\"]{1,254}")
_LINK = re.compile(r"(?:https?://|\bwww\.)\S+")
_HOST = re.compile(r"\b\d+(?:\.\d+){3}\b|\b(?:[\w-]{1,63}\.){2,9}[a-z]{2,}\b", re.IGNORECASE)
_SEAM = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_")
_WORD = re.compile(r"[^\W\d_]+(?:'[a-z]+)?")
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u2e80-\uffdc]")
"""Thai, Chinese, Japanese and Korean letters."""
_BASIC = re.compile(r"\W*([45]\d\d)[ -]")
_ENHANCED = re.compile(r"(?<![\d.])[245]\.(\d{1,3})\.(\d{1,3})(?![\d.])")
Matrix = NDArray[np.float64]
Weights = dict[str, list[float]]


def features_of(reply: Reply) -> set[str]:
    """Return the features of an answer; a listed code stands before ": "."""
    text = (reply.text.partition(": ")[2] if reply.service else reply.text)[:READ_MAX]
    said = _HOST.sub(" ", _LINK.sub(" ", _ADDRESS.sub(" ", text)))
    said = _SEAM.sub(" ", said).lower().replace("’", "'")
    terms = [part for word in _WORD.findall(said) for part in _split_unspaced(word)]
    starts = {f"{word[:START]}~" for word in terms if len(word) > START}
    return {*terms, *starts, *_code_features(reply.code, text)}


def learn_weights(learned: Sequence[Reply]) -> Weights:
    """Return the weights of each feature in the order of CAUSES; under "" those of any answer."""
    found = [features_of(reply) for reply in learned]
    times = Counter(one for features in found for one in features)
    names = sorted(one for one, count in times.items() if count >= ANSWERS_MIN)
    place = {name: number for number, name in enumerate(names)}
    columns = [[*sorted(place[one] for one in features if one in place), len(names)] for features in found]
    weights = _fit(columns, np.array([_shares(reply) for reply in learned]), len(names) + 1)
    rows: list[list[float]] = weights.tolist()
    return {ANY: rows[-1], **dict(zip(names, rows, strict=False))}


def weigh_causes(features: set[str], weights: Weights) -> dict[str, float]:
    """Return the probability of each cause; the sum is 1."""
    known = [weights[one] for one in features if one in weights]
    share = sqrt(len(known) or 1)
    scores = [sum(one) / share + free for free, *one in zip(weights[ANY], *known, strict=True)]
    parts = [exp(score - max(scores)) for score in scores]
    return {cause: part / sum(parts) for cause, part in zip(CAUSES, parts, strict=True)}


def overrule_by_vocabulary(cause: str, features: set[str], weights: Weights) -> str:
    """Return the cause after the words are weighed: of *unknown* and *recipient*; any other stays as it is."""
    if cause not in ("unknown", "recipient") or features & CLEAR_CODES:
        return cause
    chances = weigh_causes(features, weights)
    if cause == "recipient":
        return "unknown" if sum(chances[one] for one in OURS) >= OURS_AT_LEAST else cause
    likely = max(chances, key=chances.__getitem__)
    return likely if chances[likely] >= AT_LEAST.get(likely, 2.0) else cause


def _split_unspaced(word: str) -> Sequence[str]:
    """Return the pairs of letters of a word in a script without blanks, else the word."""
    if word.isascii() or len(word) < 3 or not _UNSPACED.search(word):
        return (word,)
    return [word[place : place + 2] for place in range(len(word) - 1)]


def _code_features(code: int | None, text: str) -> list[str]:
    begun, enhanced = _BASIC.match(text), _ENHANCED.search(text)
    basic = str(code) if code else begun[1] if begun else ""
    if not basic and not enhanced:
        return ["=service"]
    of_basic = [f"={basic}", f"={basic[0]}xx"] if basic else []
    return ["=server", *of_basic, *([f"={enhanced[1]}.{enhanced[2]}", f"={enhanced[1]}.x"] if enhanced else [])]


def _shares(reply: Reply) -> list[float]:
    shares = dict.fromkeys(CAUSES, 0.0) | {reply.cause: 1.0}
    if reply.also:
        shares[reply.cause] -= SECOND
        shares[reply.also] += SECOND
    return list(shares.values())


def _fit(columns: list[list[int]], wanted: Matrix, width: int) -> Matrix:
    """Return the weights after accelerated steps; each feature has a step of its own, the last row no penalty."""
    lengths = np.array([len(row) for row in columns])
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    column = np.concatenate([np.array(row) for row in columns])
    row = np.repeat(np.arange(len(columns)), lengths)
    value = np.where(column == width - 1, 1.0, 1 / np.sqrt(np.maximum(lengths - 1, 1))[row])
    order = np.argsort(column, kind="stable")
    edges = np.searchsorted(column[order], np.arange(width))
    penalty = np.full((width, 1), PENALTY / len(columns))
    bound = np.add.reduceat((np.add.reduceat(value, starts)[row] * value)[order], edges) / (2 * len(columns))
    step = 1 / (bound[:, None] + penalty)
    penalty[-1] = 0
    weights = ahead = np.zeros((width, len(CAUSES)))
    momentum = 1.0
    for _ in range(STEPS):
        scores = np.add.reduceat(ahead[column] * value[:, None], starts)
        parts = np.exp(scores - scores.max(axis=1, keepdims=True))
        misses = parts / parts.sum(axis=1, keepdims=True) - wanted
        slope = np.add.reduceat((misses[row] * value[:, None])[order], edges) / len(columns)
        moved = ahead - step * (slope + penalty * ahead)
        next_momentum = (1 + np.sqrt(1 + 4 * momentum * momentum)) / 2
        ahead = moved + (momentum - 1) / next_momentum * (moved - weights)
        weights, momentum = moved, next_momentum
    return weights
