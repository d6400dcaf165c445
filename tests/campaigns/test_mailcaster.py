"""What a mailcaster takes, in which order, and what it leaves alone (documents 001 and 003)."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, time, timedelta
from threading import Barrier, Condition

import pytest
from django.db import connection
from django.utils import timezone

from campaigns.engine.casting.mailcaster import ClaimedJob, claim_next_job, idle_casters
from campaigns.engine.finishing import sweep
from campaigns.engine.lifecycle import move
from campaigns.models import Campaign, Job, Sponsor
from campaigns.models.states import RUNNING, S, Status
from tests import factories as make
from vendors.models import Credential, Mailcaster, Vendor

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(seconds=1)


@pytest.fixture
def login() -> Credential:
    """A credential; all jobs here are of one sponsor, as document 003 has them. test_turns.py has several."""
    make.sponsor("only")
    return make.credential(make.vendor(small_audience_threshold=100))


def caster(login: Credential, kind: str = "small-priority", name: str = "") -> Mailcaster:
    return make.caster(login.vendor, name, kind, min_size=10, max_size=50, percentage=10)


def waiting(login: Credential, size: int = 1, status: str = S.DISPATCHED, **fields: object) -> Job:
    only = Sponsor.objects.get(name="only")
    return make.campaign_with_job(size, status=status, of=login, by=only, messages=False, **fields)


def child(parent: Job, status: str = S.DISPATCHED) -> Job:
    return make.job(parent.campaign, status, parent=parent, size=10)


def log(job_id: int) -> None:
    """Marks the job as sent and finalised."""
    mine = Job.objects.filter(pk=job_id)
    assert move(mine, "send") and move(mine, "drain") and move(mine, "log", mailcaster=None)


@pytest.mark.django_db
def test_a_claimed_leaf_is_leased_to_its_caster(login: Credential) -> None:
    job = waiting(login, not_before=NOW, waits_for="the rate limit", fence=4)
    one = caster(login)
    assert claim_next_job(one.pk, NOW) == ClaimedJob(job.pk, 5, None)
    job.refresh_from_db()
    assert (job.status, job.fence, job.mailcaster, job.started_at) == (S.ENQUEUED, 5, one, NOW)
    assert (job.not_before, job.waits_for) == (None, "")
    assert abs(timezone.now() - job.heartbeat_at) < timedelta(minutes=5)  # by the database's clock


@pytest.mark.django_db
def test_a_job_that_was_put_back_keeps_its_first_start(login: Credential) -> None:
    job = waiting(login, started_at=NOW - timedelta(hours=1), fence=1)
    assert claim_next_job(caster(login).pk, NOW) == ClaimedJob(job.pk, 2, None)
    job.refresh_from_db()
    assert job.started_at == NOW - timedelta(hours=1)


@pytest.mark.django_db
def test_a_caster_takes_one_job_at_a_time(login: Credential) -> None:
    waiting(login), waiting(login)
    one = caster(login)
    first = claim_next_job(one.pk, NOW)
    assert first and claim_next_job(one.pk, NOW) is None
    log(first.job_id)
    assert claim_next_job(one.pk, NOW) is not None


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("kind", "order"),
    [
        ("small-only", ["small recovering", "small"]),
        (
            "small-priority",
            ["small recovering", "small", "child recovering", "child", "assigning", "queued"],
        ),
        (
            "large-priority",
            ["child recovering", "child", "assigning", "queued", "small recovering", "small"],
        ),
        ("large-only", ["child recovering", "child", "assigning", "queued"]),
    ],
)
def test_each_kind_has_its_priority_order(login: Credential, kind: str, order: list[str]) -> None:
    # 10 messages remain: one child each. The last in order is the oldest, so age does not decide.
    queued = waiting(login, 10, S.P_QUEUED)
    assigning = waiting(login, 30, S.P_ASSIGNING, remaining=10)
    names = {
        waiting(login).pk: "small",
        waiting(login, status=S.RECOVERING).pk: "small recovering",
        child(assigning).pk: "child",
        child(assigning, S.RECOVERING).pk: "child recovering",
    }
    one, taken = caster(login, kind), []
    while claimed := claim_next_job(one.pk, NOW):
        parents = {queued.pk: "queued", assigning.pk: "assigning"}
        taken.append(names.get(claimed.job_id) or parents[claimed.parent_id])
        log(claimed.job_id)
    assert taken == order


@pytest.mark.django_db
def test_within_a_rank_the_oldest_goes_first(login: Credential) -> None:
    jobs = [waiting(login) for _ in range(3)]
    casters = [caster(login) for _ in range(4)]
    taken = [claim_next_job(one.pk, NOW) for one in casters]
    assert [one and one.job_id for one in taken] == [*(job.pk for job in jobs), None]


@pytest.mark.django_db
def test_a_leaf_stays_small_when_the_threshold_is_lowered_under_it(login: Credential) -> None:
    job = waiting(login, 90)
    Vendor.objects.update(small_audience_threshold=10)
    assert claim_next_job(caster(login, "small-only").pk, NOW) == ClaimedJob(job.pk, 1, None)


@pytest.mark.django_db
def test_what_is_overdue_is_claimed_to_expire_also_while_the_vendor_and_the_credential_are_paused(
    login: Credential,
) -> None:
    fresh, overdue = waiting(login), waiting(login)
    Campaign.objects.filter(pk=overdue.campaign_id).update(deadline=NOW - timedelta(minutes=1))
    one = caster(login)
    for row in (login.vendor, login):
        type(row).objects.filter(pk=row.pk).update(paused=True)
    assert sweep._vendors_waiting() == {login.vendor_id}
    assert idle_casters(login.vendor_id) == [one.pk]
    assert claim_next_job(one.pk, NOW) == ClaimedJob(overdue.pk, 1, None)
    assert claim_next_job(caster(login).pk, NOW) is None
    fresh.refresh_from_db()
    assert fresh.status == S.DISPATCHED
    assert sweep._vendors_waiting() == set(), "no notification for what only waits"


@pytest.mark.django_db
def test_nothing_is_claimed_while_the_vendor_the_credential_or_the_caster_is_off(login: Credential) -> None:
    waiting(login)
    one = caster(login)
    for row in (login.vendor, login):
        type(row).objects.filter(pk=row.pk).update(paused=True)
        assert claim_next_job(one.pk, NOW) is None
        type(row).objects.filter(pk=row.pk).update(paused=False)
    Mailcaster.objects.update(enabled=False)
    assert claim_next_job(one.pk, NOW) is None
    Mailcaster.objects.update(enabled=True)
    assert claim_next_job(one.pk, NOW) is not None


@pytest.mark.django_db
def test_a_job_waits_for_its_time_and_lets_younger_ones_pass(login: Credential) -> None:
    job, younger = waiting(login, not_before=LATER), waiting(login)
    first, second = caster(login), caster(login)
    assert claim_next_job(first.pk, NOW) == ClaimedJob(younger.pk, 1, None)
    assert claim_next_job(second.pk, NOW) is None
    assert claim_next_job(second.pk, LATER) == ClaimedJob(job.pk, 1, None)


@pytest.mark.django_db
def test_jobs_of_a_closed_credential_wait_and_those_of_another_go(login: Credential) -> None:
    job, other = waiting(login), waiting(make.credential(login.vendor))
    Credential.objects.filter(pk=login.pk).update(retry_after_until=LATER)
    first, second = caster(login), caster(login)
    assert claim_next_job(first.pk, NOW) == ClaimedJob(other.pk, 1, None)
    assert claim_next_job(second.pk, NOW) is None
    assert claim_next_job(second.pk, LATER) == ClaimedJob(job.pk, 1, None)


@pytest.mark.django_db
def test_outside_its_hours_a_campaign_waits_with_a_reason_and_the_next_one_is_taken(login: Credential) -> None:
    night_owls, next_one = [waiting(login) for _ in range(3)], waiting(login)
    closed = night_owls[0].campaign
    Campaign.objects.filter(pk=closed.pk).update(hours_from=time(20), hours_to=time(8), time_zone="Europe/London")
    Job.objects.filter(pk__in=[job.pk for job in night_owls]).update(campaign=closed)
    one, other = caster(login), caster(login)
    assert claim_next_job(one.pk, NOW) == ClaimedJob(next_one.pk, 1, None)
    opening = datetime(2026, 3, 2, 20, 0, tzinfo=UTC)
    for job in night_owls:
        job.refresh_from_db()
        assert job.not_before == opening and "20:00 Europe/London" in job.waits_for
    assert claim_next_job(other.pk, opening - timedelta(seconds=1)) is None
    assert claim_next_job(other.pk, opening) == ClaimedJob(night_owls[0].pk, 1, None)


@pytest.mark.django_db
def test_before_its_send_time_a_parent_is_not_cut(login: Credential) -> None:
    parent = waiting(login, 500, S.P_QUEUED)
    Campaign.objects.filter(pk=parent.campaign_id).update(send_at=LATER)
    one = caster(login)
    assert claim_next_job(one.pk, NOW) is None
    assert not parent.children.exists()
    found = claim_next_job(one.pk, LATER)
    assert found and found.parent_id == parent.pk


@pytest.mark.django_db
def test_a_child_starts_where_the_last_one_ended(login: Credential) -> None:
    parent = waiting(login, 500, S.P_QUEUED)
    casters = [caster(login) for _ in range(3)]
    ids = [found.job_id for one in casters if (found := claim_next_job(one.pk, NOW))]
    first, second, third = Job.objects.filter(pk__in=ids).order_by("pk")
    assert [job.size for job in (first, second, third)] == [50, 45, 40]  # 10 % of 500, 450 and 405
    assert first.first_message == parent.first_message
    assert (second.first_message, third.first_message) == (first.end, second.end)
    assert (first.status, first.fence, first.parent, first.mailcaster) == (S.ENQUEUED, 1, parent, casters[0])
    parent.refresh_from_db()
    assert (parent.status, parent.remaining, parent.started_at) == (S.P_ASSIGNING, 365, NOW)


@pytest.mark.django_db
def test_an_exclusive_credential_serves_one_campaign_with_all_its_jobs_and_then_the_next(login: Credential) -> None:
    mine = make.credential(login.vendor, exclusive=True)
    first, second, other = waiting(mine), waiting(mine), waiting(mine)
    Job.objects.filter(pk=other.pk).update(campaign=first.campaign)
    one, two, three = (caster(login) for _ in range(3))
    assert claim_next_job(one.pk, NOW) == ClaimedJob(first.pk, 1, None)
    assert claim_next_job(two.pk, NOW) == ClaimedJob(other.pk, 1, None)  # the same campaign may have several jobs
    assert claim_next_job(three.pk, NOW) is None
    log(first.pk)
    assert claim_next_job(three.pk, NOW) is None
    log(other.pk)
    assert claim_next_job(three.pk, NOW) == ClaimedJob(second.pk, 1, None)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("status", "fields"),
    [
        (S.ENQUEUED, {}),
        (S.SENDING, {}),
        (S.RECOVERING, {"not_before": LATER}),
        (S.SENT, {}),
        (S.STOPPED, {"started_at": NOW}),
        (S.DISPATCHED, {"started_at": NOW, "not_before": LATER}),
        (S.P_ASSIGNING, {"not_before": LATER}),
        (S.P_ASSIGNED, {}),
    ],
)
def test_a_job_that_is_under_way_holds_the_exclusive_credential(
    login: Credential, status: str, fields: dict[str, object]
) -> None:
    mine = make.credential(login.vendor, exclusive=True)
    waiting(mine, 200, status, **fields)
    waiting(mine)
    assert claim_next_job(caster(login).pk, NOW) is None
    Credential.objects.filter(pk=mine.pk).update(exclusive=False)
    assert claim_next_job(caster(login).pk, NOW) is not None


@pytest.mark.django_db
@pytest.mark.parametrize("status", [S.RENDERED, S.READY, S.DISPATCHED, S.STOPPED, S.LOGGED, S.P_FINISHED])
def test_a_job_that_never_started_or_has_ended_holds_nothing(login: Credential, status: str) -> None:
    mine = make.credential(login.vendor, exclusive=True)
    waiting(mine, status=status, not_before=LATER)
    job = waiting(mine)
    assert claim_next_job(caster(login).pk, NOW) == ClaimedJob(job.pk, 1, None)


@pytest.mark.django_db
def test_two_reopened_parents_on_one_exclusive_credential_do_not_wait_for_each_other(login: Credential) -> None:
    mine = make.credential(login.vendor, exclusive=True)
    older, younger = (waiting(mine, 20, S.P_ASSIGNING) for _ in range(2))
    one, order = caster(login), []
    while claimed := claim_next_job(one.pk, NOW):
        order.append(claimed.parent_id)
        log(claimed.job_id)
        move(Job.objects.filter(pk=claimed.parent_id), "finish")
    assert order == [older.pk, older.pk, younger.pk, younger.pk]


@pytest.mark.django_db
def test_casters_wake_in_natural_order_and_only_idle_ones(login: Credential) -> None:
    names = ["MC10", "MC2", "fast", "MC1", "7"]
    made = {name: caster(login, name=name).pk for name in names}
    assert idle_casters(login.vendor_id) == [], "there is no job for any of them"
    waiting(login)
    assert idle_casters(login.vendor_id) == [made[name] for name in ("7", "MC1", "MC2", "MC10", "fast")]
    waiting(login)
    claim_next_job(made["MC1"], NOW)
    Mailcaster.objects.filter(pk=made["7"]).update(enabled=False)
    assert idle_casters(login.vendor_id) == [made[name] for name in ("MC2", "MC10", "fast")]


def at_once(casters: list[Mailcaster]) -> list[ClaimedJob | None]:
    """Lets each mailcaster claim in a thread with a connection of its own, all at the same moment."""
    gate = Barrier(len(casters))

    def go(one: Mailcaster) -> ClaimedJob | None:
        try:
            connection.ensure_connection()
            gate.wait(timeout=60)
            return claim_next_job(one.pk, NOW)
        finally:
            connection.close()

    with ThreadPoolExecutor(len(casters)) as threads:
        return list(threads.map(go, casters))


@pytest.mark.django_db(transaction=True)
def test_casters_that_cut_one_parent_at_once_each_get_a_child(login: Credential) -> None:
    parent = waiting(login, 500, S.P_QUEUED)
    claimed = at_once([caster(login, "large-only") for _ in range(8)])
    assert len({one.job_id for one in claimed if one}) == 8
    children = list(parent.children.order_by("first_message"))
    ends = [parent.first_message, *(one.end for one in children)]
    assert [one.first_message for one in children] == ends[:-1]
    parent.refresh_from_db()
    assert parent.remaining == parent.end - ends[-1]


@pytest.mark.django_db(transaction=True)
def test_one_caster_claimed_by_eight_workers_at_once_gets_one_job(login: Credential) -> None:
    for _ in range(8):
        waiting(login)
    one = caster(login)
    assert len([found for found in at_once([one] * 8) if found]) == 1
    assert Job.objects.filter(status__in=RUNNING).count() == 1


def campaigns_at_work(login: Credential) -> set[int]:
    """The campaigns whose jobs use the credential, read by one statement."""
    busy: list[Status] = [*RUNNING, S.RECOVERING, S.SENT]
    return set(Job.objects.filter(credential=login, status__in=busy).values_list("campaign", flat=True))


@pytest.mark.django_db(transaction=True)
def test_sixteen_pickers_never_have_two_campaigns_on_an_exclusive_credential(login: Credential) -> None:
    """Fault 32: forty campaigns of two jobs each, sixteen pickers, one login that locks to a campaign."""
    mine = make.credential(login.vendor, exclusive=True)
    for _ in range(40):
        job = waiting(mine)
        make.job(job.campaign, S.DISPATCHED)
    casters = [caster(login) for _ in range(16)]
    seen: list[set[int]] = []
    freed = Condition()

    def pick(one: Mailcaster) -> None:
        try:
            while Job.objects.exclude(status=S.LOGGED).exists():
                claimed = claim_next_job(one.pk, timezone.now())
                seen.append(campaigns_at_work(mine))
                with freed:
                    if claimed:
                        log(claimed.job_id)
                        freed.notify_all()  # the others rush at what it has freed
                    else:
                        freed.wait(timeout=0.2)
        finally:
            connection.close()

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(pick, casters))
    assert Job.objects.filter(status=S.LOGGED).count() == 80
    assert max(len(campaigns) for campaigns in seen) == 1
