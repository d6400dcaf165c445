"""Who has unsubscribed from a topic alone is suppressed so by the API, the command, a file and the admin alike."""

import io
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from campaigns.models import Suppression, Topic
from tests import factories
from tests.front.program import Program, fresh, pointers

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
HERE = "/api/v1/suppressions"
ANN = "ann@example.com"


def offers(sponsor: Any) -> Topic:
    return Topic.objects.create(sponsor=sponsor, name="offers", title="Weekly offers")


def manage(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def asked(reason: str = "unsubscribed", **fields: Any) -> dict[str, Any]:
    return {"channel": "email", "suppressions": [{"address": ANN, "reason": reason, **fields}]}


def test_a_program_names_a_topic_of_its_sponsor() -> None:
    program, other = Program(), Program()
    topic = offers(program.sponsor)
    for _ in range(2):
        changed = program.send(asked(topic="offers"), None, HERE).json()["changed"]
    assert changed == 0 and Suppression.objects.get().topic == topic
    assert [row["topic"] for row in program.get(HERE).json()["data"]] == ["offers"]
    assert program.send(asked(), None, HERE).json() == {"changed": 1}, "from everything is another one"
    for body in (asked(topic="others"), asked("bounced", topic="offers")):
        assert pointers(program.send(body, None, HERE)) == {"/suppressions/0/topic": "topic"}
    assert pointers(other.send(asked(topic="offers"), None, HERE)) == {"/suppressions/0/topic": "topic"}
    assert Suppression.objects.count() == 2
    named = {"channel": "email", "addresses": [ANN]}
    assert program.send(named, None, f"{HERE}/erase").json() == {"changed": 2}
    assert program.send(named, None, f"{HERE}/lift").json() == {"changed": 2}


def test_a_command_names_a_topic_and_what_it_exports_can_be_imported_again(tmp_path: Path) -> None:
    sponsor, other = factories.sponsor(), factories.sponsor()
    for one in (sponsor, other):
        offers(one)
    topic = ["--reason", "unsubscribed", "--topic", "offers"]
    manage("suppression", "add", "--sponsor", sponsor.name, ANN, *topic)
    assert Suppression.objects.get().topic == sponsor.topics.get()
    for wrong in (["--reason", "stop", "--topic", "offers"], ["--reason", "unsubscribed", "--topic", "news"]):
        with pytest.raises(CommandError, match="topic"):
            manage("suppression", "add", "--sponsor", sponsor.name, "bob@example.com", *wrong)
    with pytest.raises(CommandError, match="there is no topic"):
        manage("suppression", "add", "--all-sponsors", ANN, *topic)
    file = tmp_path / "list.csv"
    file.write_text(manage("suppression", "export", "--sponsor", sponsor.name))
    manage("suppression", "import", "--sponsor", other.name, str(file))
    assert Suppression.objects.get(sponsor=other).topic == other.topics.get()
    file.write_text(f"address,reason\n{ANN},bounced\nbob@example.com,\n")
    manage("suppression", "import", "--sponsor", sponsor.name, str(file), *topic)
    found = Suppression.objects.filter(sponsor=sponsor).order_by("id").values_list("reason", "topic__name")
    assert list(found) == [("unsubscribed", "offers"), ("bounced", None), ("unsubscribed", "offers")]


def test_the_admin_takes_a_topic_of_the_sponsor_with_the_reason_unsubscribed_only(admin_client: Client) -> None:
    sponsor = factories.sponsor()
    topic, strange = offers(sponsor), offers(factories.sponsor())
    body = {"sponsor": sponsor.pk, "channel": "email", "address": ANN, "source": ""}
    for reason, of in (("bounced", topic), ("unsubscribed", strange)):
        page = admin_client.post("/admin/campaigns/suppression/add/", {**body, "reason": reason, "topic": of.pk})
        assert page.status_code == 200 and list(page.context["adminform"].form.errors) == ["topic"]
    assert not Suppression.objects.exists()
    admin_client.post("/admin/campaigns/suppression/add/", {**body, "reason": "unsubscribed", "topic": topic.pk})
    assert Suppression.objects.get().topic == topic
