"""The measure of unfamiliar answers judges as the product does, and learns the same of the same answers."""

import pytest

from tests.causes.learning import ANY, CAUSES, features_of, learn_weights, overrule_by_vocabulary, weigh_causes
from tests.causes.measure import judge_by_rules
from tests.causes.test_corpus import Reply, replies

SURE, HALF = 99.0, 0.8


def weights_of(cause: str, weight: float) -> dict[str, list[float]]:
    return {ANY: [0.0] * len(CAUSES), "word": [weight if one == cause else 0.0 for one in CAUSES]}


def reply_of(text: str) -> Reply:
    return Reply("origin", "RFC 3463", "content", "", None, text, "file")


def test_rules_judge_in_a_process_of_their_own_as_here():
    some = replies()[::20]
    assert any(one.service for one in some)
    assert judge_by_rules(some) == [one.judged for one in some]


def test_the_same_answers_teach_the_same_in_any_order():
    some = replies()[::10]
    weights = learn_weights(some)
    again = learn_weights(some[::-1])
    assert weights.keys() == again.keys()
    assert all(again[name] == pytest.approx(row, abs=1e-6) for name, row in weights.items())


def test_words_say_what_they_were_heard_with():
    weights = learn_weights(replies())
    chances = weigh_causes(features_of(reply_of("Template variable mismatch")), weights)
    assert sum(chances.values()) == pytest.approx(1)
    assert max(chances, key=chances.__getitem__) == "content"


@pytest.mark.parametrize("cause", CAUSES)
def test_words_alone_give_no_cause_that_pauses_or_suppresses(cause):
    said = overrule_by_vocabulary("unknown", {"word"}, weights_of(cause, SURE))
    assert said == (cause if cause in ("content", "vendor") else "unknown")
    assert overrule_by_vocabulary("unknown", {"word"}, weights_of(cause, HALF)) == "unknown"


def test_a_recipient_is_cleared_where_words_speak_of_us_and_no_code_is_clear():
    for cause in ("us", "capacity"):
        assert overrule_by_vocabulary("recipient", {"word"}, weights_of(cause, SURE)) == "unknown"
        assert overrule_by_vocabulary("recipient", {"word"}, weights_of(cause, HALF)) == "recipient"
        assert overrule_by_vocabulary("recipient", {"word", "=1.1"}, weights_of(cause, SURE)) == "recipient"


@pytest.mark.parametrize("text", ["", "17", "....", "لا شيء", "a.b." * 25_000, "字" * 100_000, "x" * 100_000])
def test_empty_and_long_answers_have_few_features(text):
    assert len(features_of(reply_of(text))) <= 600
