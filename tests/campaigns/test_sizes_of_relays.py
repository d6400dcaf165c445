"""A relay says in its EHLO how large a mail may be (SIZE, RFC 1870): the next list is checked by it at every door."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from campaigns.lists.drafts import contents
from campaigns.lists.intake.checking import field_faults
from campaigns.models import Campaign, Draft, Identity, Message
from tests import factories
from tests.faults.sending import send_the_rest, sent, taken
from tests.front.program import Program, fresh, letter, pointers
from tests.receivers.relays import serve_relay
from vendors import configuration, history
from vendors.models import Credential, Vendor

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db(transaction=True)
LARGE = "x" * 60_000


class Relay:
    """says: its line about sizes in the answer to EHLO; "": none."""

    def __init__(self, says: str) -> None:
        self.says, self.taken = says, 0

    async def handle_EHLO(self, _: Any, session: Any, __: Any, hostname: str, answer: list[str]) -> list[str]:
        session.host_name = hostname
        others = [line for line in answer if "SIZE" not in line]
        return [others[0], *([f"250-{self.says}"] if self.says else []), *others[1:]]

    async def handle_DATA(self, *_: Any) -> str:
        self.taken += 1
        return "250 taken"


@contextmanager
def serving(relay: Relay) -> Iterator[Credential]:
    with serve_relay(relay) as port:
        known = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": "us@example.org"}
        vendor = factories.vendor(slug="relay", adapter="smtp", channel="email", settings=known)
        yield factories.credential(vendor, "default")


def learned(login: Credential) -> int | None:
    login.refresh_from_db()
    return login.relay_size


def test_after_one_mail_each_door_refuses_a_larger_one_before_anything_is_stored(fresh: None, tmp_path: Path) -> None:
    with serving(relay := Relay("SIZE 50000")) as login:
        sent(taken(1, login))
        assert learned(login) == 50_000 and relay.taken == 1
        Campaign.objects.update(name="the first")
        table, body = tmp_path / "list.csv", tmp_path / "body.txt"
        table.write_text(f"email,name\nann@example.org,Ann\nbob@example.org,{LARGE}\n")
        body.write_text("Dear {{ name }}")
        given = (str(table), "--sponsor", Campaign.objects.get().sponsor.name, "--vendor", "relay", "--body", str(body))
        with pytest.raises(
            CommandError, match=r"row 3: the mail would have [0-9,]+ bytes, and the vendor takes 50,000"
        ):
            call_command("send_campaign", *given, "--subject", "News")

        recipients = [{"to": f"{n}@example.org", "fields": {"name": name}} for n, name in enumerate(["Ann", LARGE])]
        mail = letter(login.vendor, recipients=recipients, body="Dear {{ name }}")
        sponsor = factories.sponsor("Ann")
        Identity.objects.create(sponsor=sponsor, name="ours", from_address="us@example.org", default=True)
        assert pointers(Program(sponsor).send(mail)) == {"/recipients/1/fields": "fields"}

        draft = Draft.objects.create(
            sponsor=sponsor, name="May", credential=login, subject="News", text="Dear {{ name }}"
        )
        made = contents.content_of_draft(draft).compiled
        assert not list(field_faults("ann@example.org", {"name": "Ann"}, made))
        [why] = field_faults("bob@example.org", {"name": LARGE}, made)
        assert "the vendor takes 50,000" in why
        assert list(Campaign.objects.values_list("name", flat=True)) == ["the first"] and relay.taken == 1


def test_a_relay_that_changes_its_limit_or_names_none_any_more_is_believed() -> None:
    with serving(relay := Relay("SIZE 50000")) as login:
        sent(taken(1, login))
        for says in ("", "SIZE", "SIZE 0", "SIZE lots", "SIZE -5", f"SIZE {'9' * 30}"):
            relay.says = "SIZE 10485760"
            sent(taken(1, login))
            assert learned(login) == 10_485_760
            relay.says = says
            sent(taken(1, login))
            assert learned(login) is None, says


def test_the_row_is_written_only_when_the_size_has_changed() -> None:
    with serving(Relay("SIZE 50000")) as login:
        sent(taken(1, login))
        with connection.cursor() as cursor:
            cursor.execute(
                "CREATE FUNCTION forbidden() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'written'; END $$;"
                "CREATE TRIGGER forbidden BEFORE UPDATE OF relay_size ON vendors_credential"
                " FOR EACH ROW EXECUTE FUNCTION forbidden()"
            )
        try:
            sent(taken(1, login))
        finally:
            with connection.cursor() as cursor:
                cursor.execute("DROP TRIGGER forbidden ON vendors_credential; DROP FUNCTION forbidden()")
        assert learned(login) == 50_000


def test_a_mail_accepted_before_the_size_was_known_is_refused_and_never_begun() -> None:
    with serving(relay := Relay("SIZE 50000")) as login:
        job = taken(["ann@example.org", "bob@example.org"], login)
        Campaign.objects.update(body="Dear {{ name }}")
        Message.objects.filter(recipient="bob@example.org").update(params={"name": LARGE})
        Message.objects.filter(recipient="ann@example.org").update(params={"name": "Ann"})
        send_the_rest(job)
        assert relay.taken == 1
        assert str(Message.objects.get(recipient="bob@example.org").error_sub_type).startswith("size: the mail has")


def test_a_relay_at_another_address_has_said_nothing_yet() -> None:
    with serving(Relay("SIZE 50000")) as login:
        sent(taken(1, login))
        vendor = Vendor.objects.get()
        vendor.settings = {**vendor.settings, "timeout": 90}
        configuration.save_vendor(vendor, {"settings"}, history.Actor("ann"))
        assert learned(login) == 50_000, "the same relay"
        vendor.settings = {**vendor.settings, "host": "localhost"}
        configuration.save_vendor(vendor, {"settings"}, history.Actor("ann"))
        assert learned(login) is None
