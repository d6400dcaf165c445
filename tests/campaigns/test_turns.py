"""Whose turn it is at a vendor: sponsors share it by their weights, and nobody saves turns up."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from io import StringIO
from threading import Barrier

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from campaigns.engine.casting.mailcaster import claim_next_job
from campaigns.engine.lifecycle import move
from campaigns.engine.turns import charges
from campaigns.engine.turns.order import order_turns
from campaigns.models import ClassTurn, Job, Sponsor, SponsorTurn
from campaigns.models.states import S
from tests import factories as make
from vendors.models import Credential, Mailcaster

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
pytestmark = pytest.mark.django_db


@pytest.fixture
def login() -> Credential:
    return make.credential(make.vendor(small_audience_threshold=100))


def caster(login: Credential, kind: str = "small-priority") -> Mailcaster:
    return make.caster(login.vendor, "", kind, min_size=10, max_size=10, percentage=10)


def letters(login: Credential, by: Sponsor, number: int) -> list[Job]:
    return [make.campaign_with_job(1, status=S.DISPATCHED, of=login, by=by, messages=False) for _ in range(number)]


def send(caster: Mailcaster) -> int | None:
    """Let the mailcaster take a job, send it, and charge its sponsor. Returns the sponsor."""
    claimed = claim_next_job(caster.pk, NOW)
    if claimed is None:
        return None
    job = Job.objects.get(pk=claimed.job_id)
    mine = Job.objects.filter(pk=job.pk)
    assert move(mine, "send") and move(mine, "drain") and move(mine, "log", mailcaster=None)
    charges.charge_sponsor(job.vendor_id, job.sponsor_id, job.size)
    return job.sponsor_id


def send_all(caster: Mailcaster, most: int = 10_000) -> list[int]:
    sent: list[int] = []
    while len(sent) < most and (sponsor := send(caster)) is not None:
        sent.append(sponsor)
    return sent


def weigh(login: Credential, sponsor: Sponsor, weight: int) -> None:
    SponsorTurn.objects.update_or_create(vendor=login.vendor, sponsor=sponsor, defaults={"weight": weight})


def test_a_letter_does_not_wait_behind_a_hundred_older_ones_of_another_sponsor(login: Credential) -> None:
    one, other = make.sponsor(), make.sponsor()
    letters(login, one, 100), letters(login, other, 1)
    sent = send_all(caster(login), 3)
    assert other.pk in sent[:2]


def test_within_a_sponsor_the_ranks_and_the_age_decide(login: Credential) -> None:
    one, other = make.sponsor(), make.sponsor()
    parent = make.campaign_with_job(200, status=S.P_QUEUED, of=login, by=one, messages=False, remaining=200)
    first, second = letters(login, one, 2)
    letters(login, other, 3)
    mine = caster(login)
    order = []
    while len(order) < 3:
        claimed = claim_next_job(mine.pk, NOW)
        assert claimed
        job = Job.objects.get(pk=claimed.job_id)
        if job.sponsor_id == one.pk:
            order.append(claimed.parent_id or claimed.job_id)
        move(Job.objects.filter(pk=job.pk), "send")
        move(Job.objects.filter(pk=job.pk), "drain")
        move(Job.objects.filter(pk=job.pk), "log", mailcaster=None)
        charges.charge_sponsor(job.vendor_id, job.sponsor_id, job.size)
    assert order == [first.pk, second.pk, parent.pk]


@pytest.mark.parametrize("weights", [(1, 1), (1, 3), (2, 5, 1), (1, 2, 4, 6)])
def test_sponsors_get_shares_by_their_weights(login: Credential, weights: tuple[int, ...]) -> None:
    sponsors = [make.sponsor() for _ in weights]
    for sponsor, weight in zip(sponsors, weights, strict=True):
        weigh(login, sponsor, weight)
        letters(login, sponsor, 2 * weight + 2)
    sent = Counter(send_all(caster(login), 2 * sum(weights)))
    for sponsor, weight in zip(sponsors, weights, strict=True):
        assert abs(sent[sponsor.pk] - 2 * weight) <= 1


def test_whoever_was_idle_has_saved_nothing_up(login: Credential) -> None:
    one, other = make.sponsor(), make.sponsor()
    mine = caster(login)
    letters(login, other, 1), letters(login, one, 60)
    assert len(send_all(mine, 31)) == 31  # the other one's letter, and thirty alone
    letters(login, other, 20)
    sent = Counter(send_all(mine, 20))
    assert abs(sent[one.pk] - sent[other.pk]) <= 2


def test_whoever_was_alone_owes_nothing(login: Credential) -> None:
    one, other = make.sponsor(), make.sponsor()
    mine = caster(login)
    letters(login, one, 50)
    send_all(mine, 40)
    letters(login, other, 20)
    sent = Counter(send_all(mine, 16))
    assert abs(sent[one.pk] - sent[other.pk]) <= 2


def test_an_edited_weight_holds_from_the_next_unit_on(login: Credential) -> None:
    one, other = make.sponsor(), make.sponsor()
    letters(login, one, 100), letters(login, other, 100)
    mine = caster(login)
    sent = Counter(send_all(mine, 40))
    assert abs(sent[one.pk] - sent[other.pk]) <= 1
    weigh(login, other, 4)
    sent = Counter(send_all(mine, 50))
    assert abs(sent[other.pk] - 40) <= 2


def test_casters_that_are_free_at_once_are_shared_out(login: Credential) -> None:
    one, other = make.sponsor(), make.sponsor()
    letters(login, one, 20), letters(login, other, 20)
    charges.charge_sponsor(login.vendor_id, one.pk, 3, rate=10.0)  # a little ahead, as it was given something just now
    taken = [claim_next_job(caster(login).pk, NOW) for _ in range(6)]
    whose = Counter(Job.objects.get(pk=claimed.job_id).sponsor_id for claimed in taken if claimed)
    assert whose == {one.pk: 3, other.pk: 3}


def test_nobody_has_a_second_leaf_while_another_sponsor_waits_for_its_first(login: Credential) -> None:
    """Ten sponsors. One was alone for a slice, and is charged more than all others will be for minutes."""
    sponsors = [make.sponsor() for _ in range(10)]
    for weight, sponsor in enumerate(sponsors, start=1):
        weigh(login, sponsor, weight)
        letters(login, sponsor, 4)
    charges.charge_sponsor(login.vendor_id, sponsors[0].pk, 300, rate=6.0)
    taken = [claim_next_job(caster(login).pk, NOW) for _ in range(13)]
    whose = Counter(Job.objects.get(pk=claimed.job_id).sponsor_id for claimed in taken if claimed)
    assert {*whose} == {one.pk for one in sponsors}
    assert whose.total() == 13 and whose[sponsors[0].pk] == 1, "who is ahead has no second one"


def test_a_sponsor_whose_jobs_may_not_go_is_passed_over_and_loses_no_turn(login: Credential) -> None:
    one, other = make.sponsor(), make.sponsor()
    paused = letters(login, one, 2)
    letters(login, other, 30)
    Job.objects.filter(pk__in=[job.pk for job in paused]).update(paused_at=NOW)
    mine = caster(login)
    assert set(send_all(mine, 20)) == {other.pk}
    Job.objects.filter(pk__in=[job.pk for job in paused]).update(paused_at=None)
    letters(login, one, 8)
    sent = Counter(send_all(mine, 10))
    assert sent[one.pk] in (4, 5, 6), "it has saved nothing up either"


def test_with_one_sponsor_nothing_is_compared_or_written(login: Credential) -> None:
    letters(login, make.sponsor(), 3)
    mine = caster(login)
    with CaptureQueriesContext(connection) as asked:
        assert claim_next_job(mine.pk, NOW)
    alone = len(asked)
    assert not ClassTurn.objects.exists()
    letters(login, make.sponsor(), 1)
    next_one = caster(login)
    with CaptureQueriesContext(connection) as asked:
        assert claim_next_job(next_one.pk, NOW)
    assert len(asked) <= alone


def test_order_is_by_virtual_time_and_running_leaves_count_as_given() -> None:
    state = [10, 3, {"3": 10.0}, None, None]
    compared = [state, [[3, 1, 1, 5.0, 2.0, 0], [3, 2, 1, 12.0, 2.0, 0], [3, 3, 2, 11.0, 2.0, 3]]]
    order = order_turns(compared)
    assert [turn.sponsor for turn in order] == [1, 2, 3]
    assert [turn.start for turn in order] == [10.0, 12.0, 11.0]
    assert [turn.clock for turn in order] == [10.0, 11.0, 11.0], "the clock does not pass the third one"
    compared[1] += [[3, 4, 1, 99.0, 2.0, 0], [3, 5, 1, 10.0, 2.0, 1]]
    assert [turn.sponsor for turn in order_turns(compared)] == [1, 2, 4, 5, 3], "without a leaf, and then by time"


def test_a_weight_is_set_by_command_and_its_history_tells(login: Credential) -> None:
    velma, out = make.sponsor(), StringIO()
    call_command("weight", "set", velma.name, login.vendor.slug, "3", stdout=out)
    row = SponsorTurn.objects.get(sponsor=velma, vendor=login.vendor)
    assert row.weight == 3 and "weight 3" in out.getvalue()
    assert "weight 1 → 3" in LogEntry.objects.get(object_id=str(row.pk)).change_message
    out = StringIO()
    call_command("weight", "list", "--vendor", login.vendor.slug, "--json", stdout=out)
    assert json.loads(out.getvalue()) == {"sponsor": velma.name, "vendor": login.vendor.slug, "weight": 3}
    for wrong in ("0", "1001"):
        with pytest.raises(CommandError, match="a whole number from 1 to 1000"):
            call_command("weight", "set", velma.name, login.vendor.slug, wrong)


def test_an_edit_in_the_admin_leaves_alone_what_was_given(login: Credential, admin_client: Client) -> None:
    velma = make.sponsor()
    weigh(login, velma, 1)
    row = SponsorTurn.objects.get(sponsor=velma)
    charges.charge_sponsor(login.vendor_id, velma.pk, 12)
    page = f"/admin/campaigns/sponsorturn/{row.pk}/change/"
    assert admin_client.post(page, {"weight": "0"}).status_code == 200, "the page says what is wrong"
    assert admin_client.post(page, {"weight": "4"}).status_code == 302
    row.refresh_from_db()
    assert row.weight == 4
    assert ClassTurn.objects.get(sponsor=velma).given == 12.0


def test_a_vendor_and_a_sponsor_can_be_deleted_with_their_weights(admin_client: Client) -> None:
    for page, field in (("vendors/vendor", "vendor_id"), ("campaigns/sponsor", "sponsor_id")):
        row = SponsorTurn.objects.create(vendor=make.vendor(), sponsor=Sponsor.objects.create(name=f"of {page}"))
        page = f"/admin/{page}/{getattr(row, field)}/delete/"
        assert admin_client.post(page, {"post": "yes"}).status_code == 302
        assert not SponsorTurn.objects.filter(pk=row.pk).exists()


def test_a_user_of_one_sponsor_sees_no_weight_of_another(login: Credential) -> None:
    mine, other = make.sponsor(), make.sponsor()
    weigh(login, mine, 2), weigh(login, other, 5)
    user = User.objects.create_user("ann", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_sponsorturn", "change_sponsorturn"]))
    mine.users.add(user)
    client = Client()
    client.force_login(user)
    page = client.get("/admin/campaigns/sponsorturn/").content.decode()
    assert mine.name in page and other.name not in page
    row = SponsorTurn.objects.get(sponsor=mine)
    client.post(f"/admin/campaigns/sponsorturn/{row.pk}/change/", {"weight": "9"})
    row.refresh_from_db()
    assert row.weight == 2, "the vendor's owner sets it"


@pytest.mark.django_db(transaction=True)
def test_casters_that_choose_at_once_cut_every_message_once(login: Credential) -> None:
    """Sixteen claims in eight threads, while senders charge the same rows."""
    sponsors = [make.sponsor() for _ in range(3)]
    parents = [
        make.campaign_with_job(200, status=S.P_QUEUED, of=login, by=one, messages=False, remaining=200)
        for one in sponsors
    ]
    gate = Barrier(8)

    def go(casters: tuple[Mailcaster, Mailcaster]) -> list[int]:
        try:
            connection.ensure_connection()
            gate.wait(timeout=60)
            taken = []
            for one in casters:
                charges.charge_sponsor(login.vendor_id, sponsors[one.pk % 3].pk, 3)
                claimed = claim_next_job(one.pk, NOW)
                assert claimed
                taken.append(claimed.job_id)
            return taken
        finally:
            connection.close()

    pairs = [(caster(login), caster(login)) for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        taken = [job for jobs in threads.map(go, pairs) for job in jobs]
    assert len(set(taken)) == 16
    for parent in parents:
        parent.refresh_from_db()
        children = list(parent.children.order_by("first_message"))
        ends = [parent.first_message, *(one.end for one in children)]
        assert [one.first_message for one in children] == ends[:-1]
        assert parent.remaining == parent.end - ends[-1]
    assert {Job.objects.get(pk=job).sponsor_id for job in taken} == {one.pk for one in sponsors}
