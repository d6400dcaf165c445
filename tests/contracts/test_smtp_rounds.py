"""Several mails in a row over one SMTP connection: each has its own outcome; none that was not written is in doubt."""

from __future__ import annotations

import asyncio

import pytest

from tests.contracts.test_smtp import TAKEN, letter, opened, settings
from vendors.adapters.base import Letter, Origin
from vendors.adapters.call_progress import progress
from vendors.outcomes import InDoubt, NotSent, Outcome, Refused
from vendors.testing.smtp_cases import LATE, waits
from vendors.testing.smtp_relay import Act, MisbehavingSmtp, cut, drip, hang, lose, say
from vendors.testing.subject import LOOPS, run

pytestmark = [pytest.mark.parametrize("loop", LOOPS), pytest.mark.parametrize("pipelining", [False, True])]
NEXT = NotSent("its round broke off before it", retry_after=0.0)
BUSY = waits("smtp 421 at dot: bye")


def test_a_round_goes_over_one_connection_and_each_mail_arrives_once(loop: str, pipelining: bool) -> None:
    async def story() -> None:
        async with MisbehavingSmtp(pipelining=pipelining) as relay, opened(settings(relay.port, batch=5)) as adapter:
            assert adapter.capabilities.batch_max == 5
            for first in (0, 5):
                assert await adapter.send([letter(f"good-{first + n}") for n in range(5)]) == TAKEN * 5
            assert relay.connections == 1 and dict(relay.taken) == {f"good-{n}": 1 for n in range(10)}
            assert [line for line in relay.lines if line.startswith("RCPT")] == [
                f"RCPT TO:<good-{n}@example.org>" for n in range(10)
            ]

    run(loop, story)


def test_the_mails_of_several_identities_share_a_round_and_each_has_its_own_return_path(
    loop: str, pipelining: bool
) -> None:
    brands = [None, Origin("ann@one.example"), Origin("bob@two.example", return_path="bounces@three.example")]

    async def story() -> None:
        async with MisbehavingSmtp(pipelining=pipelining) as relay, opened(settings(relay.port, batch=3)) as adapter:
            letters = [letter(f"good-{n}")._replace(origin=origin) for n, origin in enumerate(brands)]
            assert await adapter.send(letters) == TAKEN * 3 and relay.connections == 1
            return_paths = ["us@example.org", "ann@one.example", "bounces@three.example"]
            assert [line for line in relay.lines if line.startswith("MAIL")] == [
                f"MAIL FROM:<{one}>" for one in return_paths
            ]

    run(loop, story)


def test_a_relay_without_a_sender_of_its_own_takes_letters_with_an_origin_only(loop: str, pipelining: bool) -> None:
    async def story() -> None:
        async with MisbehavingSmtp(pipelining=pipelining) as relay:
            async with opened(settings(relay.port, batch=2, sender="")) as adapter:
                named = letter("good-1")._replace(origin=Origin("ann@one.example"))
                nobody, sent = await adapter.send([letter("good-0"), named])
            assert isinstance(nobody, NotSent) and nobody.pause and [sent] == TAKEN
            assert relay.lines[0] == "EHLO [127.0.0.1]" and dict(relay.taken) == {"good-1": 1}
            async with opened(settings(relay.port, sender="", helo="mail.example.com")) as adapter:
                assert await adapter.send([named._replace(reference="good-2", recipient="good-2@example.org")]) == TAKEN
            assert "EHLO mail.example.com" in relay.lines

    run(loop, story)


def test_what_cannot_be_sent_or_is_refused_costs_its_neighbours_nothing(loop: str, pipelining: bool) -> None:
    async def story() -> None:
        async with MisbehavingSmtp({"rcpt": say("550 5.1.1 no")}, pipelining=pipelining) as relay:
            async with opened(settings(relay.port, batch=6)) as adapter:
                names = ["good-1", "bad-2", "bad-3", "good-4", "good\n5", "good-6"]
                outcomes = await adapter.send([letter(name) for name in names])
            refused = Refused("550", "5.1.1")
            assert outcomes[:4] == [*TAKEN, refused, refused, *TAKEN] and outcomes[5:] == TAKEN
            assert isinstance(outcomes[4], Refused) and outcomes[4].code == "unsendable"
            assert relay.connections == 1 and dict(relay.taken) == {"good-1": 1, "good-4": 1, "good-6": 1}

    run(loop, story)


def test_a_mail_that_is_refused_at_its_end_costs_its_neighbours_nothing(loop: str, pipelining: bool) -> None:
    async def story() -> None:
        async with MisbehavingSmtp({"dot": say("552 5.3.4 too big")}, pipelining=pipelining) as relay:
            async with opened(settings(relay.port, batch=3)) as adapter:
                outcomes = await adapter.send([letter(name) for name in ("good-1", "big-2", "good-3")])
            assert outcomes == [*TAKEN, Refused("552", "5.3.4"), *TAKEN] and relay.connections == 1

    run(loop, story)


@pytest.mark.parametrize("act", [lose, cut], ids=["an end", "a reset"])
def test_only_the_mail_whose_reply_is_lost_is_in_doubt(loop: str, pipelining: bool, act: Act) -> None:
    async def story() -> None:
        relay = MisbehavingSmtp({"dot": act}, pipelining=pipelining)
        async with relay, opened(settings(relay.port, batch=4)) as adapter:
            outcomes = await adapter.send([letter(name) for name in ("good-1", "wild", "good-3", "good-4")])
            assert outcomes[0] == TAKEN[0] and isinstance(outcomes[1], InDoubt) and outcomes[2:] == [NEXT, NEXT]
            assert dict(relay.taken) == {"good-1": 1, "wild": 1}
            assert await adapter.send([letter("good-3"), letter("good-4")]) == TAKEN * 2

    run(loop, story)


def test_a_reply_that_never_comes_ends_the_round_and_leaves_one_in_doubt(loop: str, pipelining: bool) -> None:
    async def story() -> None:
        relay = MisbehavingSmtp({"dot": hang}, pipelining=pipelining)
        async with relay, opened(settings(relay.port, batch=4, **LATE)) as adapter:
            outcomes = await adapter.send([letter(name) for name in ("wild", "good-2", "good-3")])
            assert isinstance(outcomes[0], InDoubt) and outcomes[1:] == [NEXT, NEXT]
            assert dict(relay.taken) == {"wild": 1}

    run(loop, story)


@pytest.mark.slow("time")
def test_no_mail_of_a_round_begins_too_late_although_its_go_ahead_is_here_already(loop: str, pipelining: bool) -> None:
    """The reply to the first mail comes late, and with it those to the envelope that was written ahead."""

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ahead = ""
        if pipelining:
            assert (await reader.readuntil(b"DATA\r\n")).startswith(b"MAIL")
            ahead = "250 sender\r\n250 recipient\r\n354 go on\r\n"
        await asyncio.sleep(2.2)  # longer than connect_timeout
        writer.write(f"250 2.0.0 Ok: queued as EVIDENCE\r\n{ahead}".encode())

    async def story() -> None:
        relay = MisbehavingSmtp({"dot": slow}, pipelining=pipelining)
        async with relay, opened(settings(relay.port, batch=3, connect_timeout="2")) as adapter:
            outcomes = await adapter.send([letter(name) for name in ("wild", "good-2", "good-3")])
            assert outcomes == [*TAKEN, NEXT, NEXT] and dict(relay.taken) == {"wild": 1}
            assert relay.lines[-1] == "DATA", "nothing of the second mail left"

    run(loop, story)


def test_a_relay_that_asks_everybody_to_wait_gets_no_further_mail_of_the_round(loop: str, pipelining: bool) -> None:
    async def story() -> None:
        async with MisbehavingSmtp({"dot": say("421 bye", close=True)}, pipelining=pipelining) as relay:
            async with opened(settings(relay.port, batch=4)) as adapter:
                outcomes = await adapter.send([letter(name) for name in ("good-1", "wild", "good-3", "good-4")])
            assert outcomes == [*TAKEN, BUSY, NEXT, NEXT]
            assert dict(relay.taken) == {"good-1": 1, "wild": 1} and relay.connections == 1

    run(loop, story)


def test_a_round_that_is_longer_than_a_connection_may_be_goes_on_over_the_next(loop: str, pipelining: bool) -> None:
    async def story() -> None:
        async with (
            MisbehavingSmtp(pipelining=pipelining) as relay,
            opened(settings(relay.port, batch=5, mails=2)) as adapter,
        ):
            assert await adapter.send([letter(f"good-{n}") for n in range(5)]) == TAKEN * 5
            assert relay.connections == 3 and sum(relay.taken.values()) == 5

    run(loop, story)


def test_a_mail_that_is_refused_at_data_costs_its_neighbours_nothing(loop: str, pipelining: bool) -> None:
    async def story() -> None:
        async with MisbehavingSmtp({"data": say("554 5.5.1 no")}, pipelining=pipelining) as relay:
            async with opened(settings(relay.port, batch=4)) as adapter:
                outcomes = await adapter.send([letter(name) for name in ("good-1", "bad-2", "good-3", "good-4")])
            assert outcomes == [*TAKEN, Refused("554", "5.5.1"), *TAKEN * 2] and relay.connections == 1
            assert dict(relay.taken) == {"good-1": 1, "good-3": 1, "good-4": 1}

    run(loop, story)


@pytest.mark.parametrize("phase", ["rcpt", "data"])
def test_a_relay_that_leaves_in_the_middle_of_an_envelope_is_believed(loop: str, pipelining: bool, phase: str) -> None:
    async def story() -> None:
        async with MisbehavingSmtp({phase: say("421 bye", close=True)}, pipelining=pipelining) as relay:
            async with opened(settings(relay.port, batch=3)) as adapter:
                outcomes = await adapter.send([letter(name) for name in ("good-1", "wild", "good-3")])
            assert outcomes == [*TAKEN, waits(f"smtp 421 at {phase}: bye"), NEXT]
            assert dict(relay.taken) == {"good-1": 1} and relay.connections == 1

    run(loop, story)


def test_replies_that_come_in_pieces_belong_to_their_mails(loop: str, pipelining: bool) -> None:
    async def story() -> None:
        async with MisbehavingSmtp({"dot": drip("250 Ok: queued as EVIDENCE")}, pipelining=pipelining) as relay:
            async with opened(settings(relay.port, batch=3)) as adapter:
                assert await adapter.send([letter(f"slow-{n}") for n in range(3)]) == TAKEN * 3
            assert dict(relay.taken) == {f"slow-{n}": 1 for n in range(3)}

    run(loop, story)


class EndsOnce(MisbehavingSmtp):
    """Acts badly instead of its reply with this number, and then never again."""

    def __init__(self, number: int, bad: Act, pipelining: bool) -> None:
        super().__init__(pipelining=pipelining)
        self.number, self.bad, self.replies = number, bad, 0

    def act(self, phase: str, reference: str, wild: bool) -> Act | None:
        self.replies += 1
        return self.bad if self.replies == self.number else None


@pytest.mark.parametrize("bad", [lose, cut], ids=["an end", "a reset"])
def test_wherever_a_round_breaks_in_doubt_are_those_in_the_relays_books_alone(
    loop: str, pipelining: bool, bad: Act
) -> None:
    """Each reply is the last one in turn, then what provably did not leave goes again."""
    names = [f"good-{n}" for n in range(4)]

    async def deliver_all(relay: EndsOnce) -> None:
        open_ones, doubted = names, list[str]()
        async with opened(settings(relay.port, batch=4)) as adapter:
            while open_ones:
                outcomes = dict(zip(open_ones, await adapter.send([letter(name) for name in open_ones]), strict=True))
                doubted += kinds(outcomes, InDoubt)
                open_ones = kinds(outcomes, NotSent)
                assert not kinds(outcomes, Refused) and set(relay.taken) == {*names} - {*open_ones}
        assert dict(relay.taken) == dict.fromkeys(names, 1) and len(doubted) <= 1

    def kinds(outcomes: dict[str, Outcome], kind: type[Outcome]) -> list[str]:
        return [name for name, outcome in outcomes.items() if isinstance(outcome, kind)]

    async def story() -> None:
        for number in range(1, 2 + 4 * len(names) + 1):
            async with EndsOnce(number, bad, pipelining) as relay:
                await deliver_all(relay)
                assert relay.replies >= number

    run(loop, story)


class Adds:
    """A caller that adds letters to a call, one by one. may: how many of the call's letters may begin."""

    def __init__(self, added: list[Letter], may: int) -> None:
        self._added, self.may = added, may
        self.events: list[str] = []

    def began(self, number: int) -> None:
        self.events.append(f"began {number}")

    def answered(self, number: int, outcome: Outcome) -> None:
        self.events.append(f"answered {number}")

    def next_letter(self) -> Letter | None:
        return self._added.pop(0) if self._added else None

    def may_begin(self, number: int) -> bool:
        return number < self.may


@pytest.mark.parametrize("may", [4, 2])
def test_a_letter_added_to_a_call_goes_over_its_connection_if_it_may_begin_then(
    loop: str, pipelining: bool, may: int
) -> None:
    names = ["good-0", "good-1", "good-2", "good\n3"]

    async def story() -> None:
        caller = Adds([letter(name) for name in names[1:]], may)
        progress.set(caller)
        async with MisbehavingSmtp(pipelining=pipelining) as relay, opened(settings(relay.port)) as adapter:
            outcomes = await adapter.send([letter(names[0])])
            assert outcomes[:3] == TAKEN * 2 + (TAKEN if may == 4 else [NEXT]) and relay.connections == 1
            assert [type(one) for one in outcomes[3:]] == ([Refused] if may == 4 else [])
            assert dict(relay.taken) == {f"good-{number}": 1 for number in range(min(may, 3))}
            assert caller.events[:4] == ["began 0", "answered 0", "began 1", "answered 1"]
            assert ("began 2" in caller.events) == (may == 4)

    run(loop, story)


class LeavesAfter(MisbehavingSmtp):
    """Closes each connection without a word after two mails."""

    def act(self, phase: str, reference: str, wild: bool) -> Act | None:
        if phase != "dot" or sum(self.taken.values()) % 2:
            return None
        return say("250 2.0.0 Ok: queued as EVIDENCE", close=True)


@pytest.mark.parametrize("added", [False, True])
def test_a_relay_that_closes_after_some_mails_gets_the_next_ones_over_another_connection(
    loop: str, pipelining: bool, added: bool
) -> None:
    letters = [letter(f"good-{number}") for number in range(5)]

    async def story() -> None:
        relay = LeavesAfter(pipelining=pipelining)
        async with relay, opened(settings(relay.port, batch=5)) as adapter:
            if added:
                progress.set(Adds(letters[1:], 5))
            assert await adapter.send(letters[:1] if added else letters) == TAKEN * 5
            assert relay.connections == 3 and dict(relay.taken) == {f"good-{number}": 1 for number in range(5)}

    run(loop, story)


def test_a_letter_that_may_begin_no_more_when_its_connection_is_open_is_not_sent(loop: str, pipelining: bool) -> None:
    """It was added to a call whose connection takes one mail, and the next one takes its time."""

    async def story() -> None:
        caller = Adds([letter("good-1")], 2)

        async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            caller.may = 1
            writer.write(b"220 relay.example ESMTP\r\n")

        progress.set(caller)
        relay = MisbehavingSmtp({"greeting": greet}, pipelining=pipelining)
        async with relay, opened(settings(relay.port, mails=1)) as adapter:
            assert await adapter.send([letter("good-0")]) == [*TAKEN, NEXT]
            assert relay.connections == 2 and dict(relay.taken) == {"good-0": 1}
            assert len([line for line in relay.lines if line.startswith("MAIL")]) == 1

    run(loop, story)
