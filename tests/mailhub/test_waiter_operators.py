"""What operators see of the waiter and do to it: manage.py waiter and the admin's page."""

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from tests.celery_tasks import in_broker, note
from tests.factories import unique
from waiter import parking
from waiter.models import ParkedTask
from waiter.release import release

pytestmark = pytest.mark.django_db
PAGE = "/admin/waiter/parkedtask/"


@pytest.fixture
def queue() -> str:
    return unique("queue")


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = parking.now()
    monkeypatch.setattr(parking, "now", lambda: now)


def park(queue: str, *hours: float) -> list[int]:
    for later in hours:
        note.apply_async([queue], queue=queue, eta=parking.now() + timedelta(hours=later))
    return list(ParkedTask.waiting.values_list("pk", flat=True))


def command(*arguments: Any) -> str:
    out = StringIO()
    call_command("waiter", *map(str, arguments), stdout=out)
    return out.getvalue()


# manage.py waiter


def test_the_command_lists_the_next_one_first_with_the_time_to_wait(queue: str) -> None:
    later, sooner = park(queue, 50, 2)[::-1]

    lines = command().splitlines()

    assert lines[1].split() == [str(sooner), "2", "hours", note.name, queue]
    assert lines[2].split() == [str(later), "2", "days,", "2", "hours", note.name, queue]


def test_the_command_lists_as_json(queue: str) -> None:
    (id,) = park(queue, 1)

    (line,) = command("--json").splitlines()

    row = ParkedTask.objects.get()
    facts = json.loads(line)
    assert facts == facts | {"id": id, "task": note.name, "task_id": row.task_id, "queue": queue, "due_in": "1 hour"}


def test_an_empty_list_says_so() -> None:
    assert command() == "nothing to show\n"


def test_released_by_hand_it_is_in_the_broker_at_once(queue: str) -> None:
    first, second = park(queue, 1, 2)

    said = command("--release", second)

    assert said.startswith(f"released {second}: {note.name}[")
    (message,) = in_broker(queue)
    assert message["headers"]["eta"] is None
    assert list(ParkedTask.waiting.values_list("pk", flat=True)) == [first]


def test_cancelled_by_hand_it_never_runs(queue: str) -> None:
    first, _ = park(queue, 1, 2)

    assert json.loads(command("--cancel", first, "--json"))["done"] == "cancelled"

    assert release(parking.now() + timedelta(hours=3)) == 1
    assert len(in_broker(queue)) == 1


@pytest.mark.parametrize("verb", ["--release", "--cancel"])
def test_an_unknown_number_is_told_and_nothing_is_done(queue: str, verb: str) -> None:
    (id,) = park(queue, 1)

    with pytest.raises(CommandError, match=f"number {id + 1}; nothing was done"):
        command(verb, id, id + 1)

    assert ParkedTask.waiting.count() == 1
    assert not in_broker(queue)


# The admin's page


@pytest.fixture
def operator(client: Client) -> Client:
    return person(client, "view", "change")


def person(client: Client, *may: str) -> Client:
    user = User.objects.create_user(unique("person"), is_staff=True)
    codenames = [*(f"{one}_parkedtask" for one in may), "all_sponsors"]  # a task has no sponsor
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client.force_login(user)
    return client


def act(client: Client, action: str, ids: list[int], **more: Any) -> Any:
    return client.post(PAGE, {"action": action, "_selected_action": ids, **more}, follow=True)


def test_the_page_shows_when_each_is_due(operator: Client, queue: str) -> None:
    (id,) = park(queue, 3)

    page = operator.get(PAGE).content.decode()

    assert "3 hours" in page
    assert queue in page
    assert queue in operator.get(f"{PAGE}{id}/change/").content.decode()


def test_the_page_asks_before_it_acts(operator: Client, queue: str) -> None:
    ids = park(queue, 1, 2, 3)

    asked = act(operator, "cancel", ids[:2]).content.decode()
    assert "2 tasks will never run" in asked
    assert ParkedTask.waiting.count() == 3

    done = act(operator, "cancel", ids[:2], confirmed="2").content.decode()
    assert "2 tasks are cancelled." in done
    assert list(ParkedTask.waiting.values_list("pk", flat=True)) == [ids[2]]


def test_what_has_changed_since_the_question_is_asked_again(operator: Client, queue: str) -> None:
    ids = park(queue, 1, 2)

    asked = act(operator, "cancel", ids[:1], select_across="1", confirmed="1").content.decode()

    assert "2 tasks will never run" in asked
    assert ParkedTask.waiting.count() == 2


def test_released_on_the_page_it_is_due_and_a_sweep_is_called(operator: Client, queue: str) -> None:
    ids = park(queue, 1)

    act(operator, "release", ids, confirmed="1")

    assert ParkedTask.waiting.get().due_in(parking.now()) == "overdue"
    assert "waiter.release" in {message["headers"]["task"] for message in in_broker("hub")}


def test_who_may_only_look_cannot_act(client: Client, queue: str) -> None:
    ids = park(queue, 1)
    looker = person(client, "view")

    assert looker.get(PAGE).status_code == 200
    act(looker, "cancel", ids, confirmed="1")

    assert ParkedTask.waiting.count() == 1


def test_a_get_changes_nothing(operator: Client, queue: str) -> None:
    (id,) = park(queue, 1)

    operator.get(PAGE, {"action": "cancel", "_selected_action": id, "confirmed": "1"})

    assert ParkedTask.waiting.count() == 1


@pytest.mark.django_db
def test_a_crontabs_time_zone_is_typed_and_checked(client: Client) -> None:
    from django_celery_beat.models import CrontabSchedule

    client.force_login(User.objects.create_superuser("root"))
    cron = CrontabSchedule.objects.create(minute="7", hour="3", timezone="Europe/Berlin")
    page = reverse("admin:django_celery_beat_crontabschedule_change", args=[cron.pk])
    shown = client.get(page).content.decode()
    assert 'value="Europe/Berlin"' in shown and "<option" not in shown
    typed = {name: getattr(cron, name) for name in ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")}
    assert (
        "Mars/Base is not one of the available choices"
        in client.post(page, {**typed, "timezone": "Mars/Base"}).content.decode()
    )
    typed |= {"periodictask_set-TOTAL_FORMS": "0", "periodictask_set-INITIAL_FORMS": "0"}
    assert client.post(page, {**typed, "timezone": "Asia/Tokyo"}).status_code == 302
    cron.refresh_from_db()
    assert str(cron.timezone) == "Asia/Tokyo"


@pytest.mark.parametrize(("typed", "status"), [
    ({"start_time__gte": "2026-12-01T10:00:00+16:00"}, 302), ({"start_time__lt": "0001-01-01T00:00:00+10:00"}, 200),
    ({"start_time__gte": "9999-12-31T23:59:59-10:00"}, 200), ({"start_time__year": "9999"}, 302),
    ({"start_time__gte": "soon"}, 302),
])  # fmt: skip
def test_beats_tasks_are_looked_up_by_any_time_or_it_is_a_wrong_look_up(
    client: Client, typed: dict[str, str], status: int
) -> None:
    client.force_login(User.objects.create_superuser("root"))
    page = client.get(reverse("admin:django_celery_beat_periodictask_changelist"), typed)
    assert page.status_code == status and page.headers.get("Location", "?e=1").endswith("?e=1")


@pytest.mark.parametrize("name", ["last_login__gte", "date_joined__lt"])
def test_so_it_is_in_the_list_of_users(client: Client, name: str) -> None:
    client.force_login(User.objects.create_superuser("root"))
    page = client.get(reverse("admin:auth_user_changelist"), {name: "2026-12-01T10:00:00+16:00"})
    assert page.headers["Location"].endswith("?e=1") and User.objects.exists()


def test_a_task_of_beat_begins_at_no_time_that_no_page_could_show(client: Client) -> None:
    client.force_login(User.objects.create_superuser("root"))
    typed = {"start_time_0": "9999-12-31", "start_time_1": "23:59:59", "name": "late", "task": note.name}
    page = client.post(reverse("admin:django_celery_beat_periodictask_add"), typed)
    assert page.context["adminform"].form.errors["start_time"] == ["Enter a valid date."]
