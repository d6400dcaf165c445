"""The benchmarks' receiver finds out what must not be: a recipient that had two letters, or none."""

import http.client
import json
import time

import pytest

from benchmarks import sink


def post(where: sink.Sink, path: str, recipient: str) -> float:
    """Seconds until it is answered."""
    line = http.client.HTTPConnection("127.0.0.1", where.port, timeout=60)
    began = time.monotonic()
    line.request("POST", f"/{path}", json.dumps({"recipient": recipient}))
    answer = line.getresponse()
    assert (answer.status, json.loads(answer.read())) == (200, {"id": "1"})
    line.close()
    return time.monotonic() - began


def test_a_recipient_that_had_two_letters_or_none_ends_the_benchmark() -> None:
    with sink.running() as where:
        post(where, "letters", "ann@example.org")
        post(where, "others", "ann@example.org")
        post(where, "letters", "bob@example.org")
        facts = where.facts("letters", 2)
        assert facts["calls"] == facts["recipients"] == 2 and facts["first"] < facts["last"]
        with pytest.raises(SystemExit, match="3 messages"):
            where.facts("letters", 3)
        post(where, "letters", "ann@example.org")
        for wanted in (2, 3):
            with pytest.raises(SystemExit, match="'duplicates': 1"):
                where.facts("letters", wanted)
        where.forget("letters")
        assert (where.count("letters"), where.count("others")) == (0, 1)


def test_a_vendor_that_is_to_answer_late_notes_the_letter_when_it_comes() -> None:
    with sink.running() as where:
        began = time.monotonic()
        took = post(where, "late/after/0.5", "ann@example.org")
        [[recipient, arrived]] = where.each("late")
        assert took >= 0.5 and recipient == "ann@example.org" and arrived <= began + took - 0.4


def test_the_fullest_second_is_found_wherever_it_begins() -> None:
    assert sink.fullest([0.0, 0.9, 1.0, 1.5, 1.89, 1.9, 3.0]) == 4
    assert sink.fullest([]) == 0
