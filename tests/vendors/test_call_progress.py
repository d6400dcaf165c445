"""Which adapters' notes about a call are believed: those of a class that says so itself."""

from types import SimpleNamespace
from typing import Any

import pytest

from vendors.adapters.call_progress import tells_progress


class Tells:
    tells_progress = True

    async def send(self, letters: Any) -> Any:
        raise NotImplementedError


class SendsInAnotherWay(Tells):
    async def send(self, letters: Any) -> Any:
        raise NotImplementedError


class SaysSoAnew(SendsInAnotherWay):
    tells_progress = True


class SaysNo(Tells):
    tells_progress = False


def replaced() -> Tells:
    found: Any = Tells()
    found.send = SendsInAnotherWay().send
    return found


@pytest.mark.parametrize(
    ("adapter", "believed"),
    [
        (Tells(), True),
        (SaysSoAnew(), True),
        (SendsInAnotherWay(), False),
        (SaysNo(), False),
        (replaced(), False),
        (SimpleNamespace(tells_progress=True), False),
    ],
)
def test_a_class_that_may_call_in_another_way_says_anew_that_it_tells(adapter: object, believed: bool) -> None:
    assert tells_progress(adapter) is believed
