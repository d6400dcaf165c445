"""Tests of an adapter's declarations: settings, secrets, capabilities."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any, get_args

import pytest

from vendors.adapters.base import PARTS
from vendors.adapters.options import InvalidSettings
from vendors.adapters.reports import BadReport, NotTheVendor, Reported, ReportedKind, ReportRequest, ReportSource
from vendors.outcomes import NotSent
from vendors.testing.servers import closed_port
from vendors.testing.subject import Subject, run

STRANGE: tuple[Any, ...] = (None, "", "\0", "a\r\nb", "x" * 100_000, -1, 1e400, float("nan"), [], {}, [{}], object())


class DeclarationContract(Subject):
    """Declarations are true, and wrong input is answered with a sentence."""

    def test_its_own_settings_pass_a_second_time(self) -> None:
        settings = self.full_settings(closed_port())
        known = self.adapter.validate(settings)
        assert self.adapter.validate(known) == known

    def test_settings_that_it_does_not_know_are_named(self) -> None:
        self._refuses(self.full_settings(closed_port()) | {"no_such_setting": "1"}, "no_such_setting")

    def test_required_settings_are_named_when_they_are_missing(self) -> None:
        settings = self.full_settings(closed_port())
        for name, option in self.adapter.options.items():
            if option.required:
                self._refuses({key: value for key, value in settings.items() if key != name}, name)

    def test_no_value_of_a_setting_raises_anything_but_its_sentences(self) -> None:
        settings = self.full_settings(closed_port())
        for name in self.adapter.options:
            for value in STRANGE:
                try:
                    self.adapter.validate(settings | {name: value})
                except InvalidSettings as why:
                    assert all(isinstance(one, str) and one for one in why.errors)
                except Exception as error:
                    raise AssertionError(f"{name} = {value!r:.80} raises {error!r}, no InvalidSettings") from error

    def test_who_changes_where_the_secret_goes_is_known(self) -> None:
        one, other = (self.adapter.destination(self.full_settings(port)) for port in (4001, 4002))
        assert one != other, "destination() must change with the vendor's address: mark that option `destination`"
        assert one == self.adapter.destination(self.full_settings(4001))

    def test_a_secret_that_it_demands_is_missed(self) -> None:
        settings = self.full_settings(closed_port())
        wanted = self.adapter.asks_secret(settings)
        assert set(wanted) <= set(self.secret), "asks_secret() names what the test's secret does not have"
        for name in wanted:
            less = {key: value for key, value in self.secret.items() if key != name}
            with pytest.raises(InvalidSettings, match=name):
                self.adapter.for_credential(settings, less)

    def test_no_secret_is_shown(self, loop: str, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        settings = self.full_settings(closed_port())
        texts: list[str] = []
        for name, value in self.secret.items():
            for bad in (f"{value}\r\nX-Injected: yes", f"{value}\0"):
                try:
                    texts.append(repr(self.adapter(settings, {**self.secret, name: bad})))
                except InvalidSettings as why:
                    texts.append(str(why))
            strange = {**self.secret, "no-such-secret": value}
            try:
                self.adapter(settings, strange)
            except InvalidSettings as why:
                texts.append(str(why))

        async def story() -> None:
            for behaviour in (None, *self.echoes()):
                async with self.server(behaviour) as server, self.opened_at(server.port) as adapter:
                    texts.extend([repr(await self.sends(adapter, self.letter("wild"))), repr(adapter)])
            async with self.opened_at(closed_port()) as adapter:
                texts.append(repr(await self.sends(adapter, self.letter("wild"))))

        run(loop, story)
        shown = "\n".join([*texts, caplog.text])
        for name, value in self.secret.items():
            assert value not in shown, f"the secret's {name} is shown: {_around(shown, value)}"

    def test_its_numbers_can_be_relied_on(self) -> None:
        adapter = self.made(self.full_settings(closed_port()))
        can = adapter.capabilities
        assert math.isfinite(adapter.deadline) and adapter.deadline > 0
        assert isinstance(adapter.concurrency, int) and adapter.concurrency >= 1
        assert isinstance(can.batch_max, int) and can.batch_max >= 1
        assert can.lookup in ("none", "weak", "strong") and can.settle_delay >= 0
        assert can.dedupe or can.dedupe_ttl is None, "dedupe_ttl without dedupe promises nothing"
        assert can.dedupe_ttl is None or can.dedupe_ttl > 0
        assert self.adapter.report_status in (200, 202)

    def test_the_deadline_follows_the_setting(self) -> None:
        """Operators raise it for slow vendors, and a stopping sender waits for it."""
        soon, late = (
            self.made(self.full_settings(closed_port(), more)).deadline for more in (self.impatient, self.patient)
        )
        assert soon < late, f"the deadline is {late} s with {self.patient} and {soon} s with {self.impatient}"

    def test_each_letter_costs_at_least_one_place_and_always_the_same(self) -> None:
        cost = self.made(self.full_settings(closed_port())).capabilities.cost
        for letter in (self.letter("wild"), self.letter("wild")._replace(body=""), *self.injections()):
            units = cost(letter)
            assert isinstance(units, int) and units >= 1 and cost(letter) == units

    def test_what_it_is_asked_without_a_secret_it_answers(self) -> None:
        settings = self.full_settings(closed_port())
        kind = self.adapter
        assert kind.carries(settings) <= set(PARTS)
        answers = (kind.asks_origin(settings), kind.sends_reports(settings), kind.reports_by_id(settings))
        assert all(isinstance(answer, bool) for answer in answers)
        assert not kind.reports_by_id(settings) or kind.sends_reports(settings)

    def test_a_look_up_that_is_not_offered_asks_nobody_and_one_that_fails_proves_nothing(self, loop: str) -> None:
        async def story() -> None:
            async with self.opened_at(closed_port()) as adapter:
                self.letter("wild")
                found = await adapter.look_up("wild")
                assert isinstance(found, NotSent), f"nobody answered, and look_up says {found!r}"
            if adapter.capabilities.lookup == "none":
                return
            async with self.server(self.good_and_close) as server, self.opened_at(server.port) as adapter:
                await adapter.look_up("good-1")
                assert server.connections, "it promises a look-up and asks nobody"
            for behaviour in self.unanswered():
                async with self.server(behaviour) as server, self.opened_at(server.port, self.impatient) as adapter:
                    found = await adapter.look_up("wild")
                    assert isinstance(found, NotSent), f"the answer was lost, and look_up says {found!r}"

        run(loop, story)

    def test_a_report_without_a_proof_is_not_the_vendors(self) -> None:
        settings = self.full_settings(closed_port())
        source = ReportSource(settings, ["a-signing-secret"], [dict(self.secret)])
        url = "https://mailhub.example/api/v1/receipts/vendor"
        if not self.adapter.sends_reports(settings):
            return
        for body in (b"", b"{}", b"[]", b"\xff\0", b'{"status": "delivered"}', b"a=b"):
            for headers in ({}, {"content-type": "application/json"}, {"content-type": "\0"}):
                for keys in ([], source.secrets):
                    with pytest.raises((NotTheVendor, BadReport)) as why:
                        asked = ReportSource(settings, keys, source.credentials)
                        self.adapter.read_report(ReportRequest("POST", url, headers, body), asked)
                    assert why.type is NotTheVendor, "a report without a proof is judged by its content"

    def test_a_report_that_the_vendor_has_made_is_read_and_that_of_another_is_not(self) -> None:
        settings = self.full_settings(closed_port())
        if not self.adapter.sends_reports(settings):
            return
        request = self.report("good-1", "vendor-1")
        if request is None:
            pytest.skip("report() gives no example of a delivery report")
        events = self.adapter.read_report(request, ReportSource(settings, [self.report_key], [dict(self.secret)]))
        assert events, "the report is read, and tells nothing"
        for event in events:
            assert isinstance(event, Reported) and event.kind in get_args(ReportedKind), event
            named = event.vendor_id if self.adapter.reports_by_id(settings) else event.reference
            assert named in ("good-1", "vendor-1"), f"the report names {named!r}"
            assert event.at.tzinfo is not None, "the time of an event needs a time zone"
        logins = [{name: f"another-{value}" for name, value in self.secret.items()}]
        with pytest.raises(NotTheVendor):
            self.adapter.read_report(request, ReportSource(settings, [f"another-{self.report_key}"], logins))

    # --- for the tests ----------------------------------------------------------------------------

    def echoes(self) -> list[Any]:
        """Return misbehaviours that echo the request."""
        return []

    def unanswered(self) -> list[Any]:
        """Return misbehaviours that leave a look-up without a result."""
        return [self.hang]

    def _refuses(self, settings: Mapping[str, Any], word: str) -> None:
        with pytest.raises(InvalidSettings) as why:
            self.adapter(settings, self.secret)
        assert word in str(why.value), f"the sentence does not name {word}: {why.value}"


def _around(text: str, value: str) -> str:
    at = text.index(value)
    return text[max(0, at - 80) : at + len(value) + 20].replace(value, "***")
