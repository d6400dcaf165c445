"""Document 003, told step by step: seven casters, jobs 101 to 103, children 104 to 111.

Where the document contradicts itself (research: the printed queue once shows 103 as QUEUED; MC6 wakes up while it
still runs 106), the test follows the sum: 4 x 2000 + 2 x 200 + 2000 + 600 = 11,000. Its QUEUED, RUNNING and FINISHED
of a leaf job are DISPATCHED, ENQUEUED or SENDING, and SENT or LOGGED here.
"""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.db import connection

from campaigns.engine.casting.mailcaster import ClaimedJob, claim_next_job
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.finishing.finalizer import finish_parent
from campaigns.engine.lifecycle import move
from campaigns.models import Job
from campaigns.models.states import S
from tests import factories as make
from vendors.models import Credential, Mailcaster

NOW = datetime(2026, 3, 2, 18, 0, tzinfo=UTC)
pytestmark = pytest.mark.django_db


@pytest.fixture
def login() -> Credential:
    return make.credential(make.vendor("ry", small_audience_threshold=2000))


@pytest.fixture
def casters(login: Credential) -> dict[str, Mailcaster]:
    """MC1 Small Job Only; MC2, MC3 Small Job Priority; MC4 to MC7 Large Job Priority; percentageJobSize is 4."""
    kinds = {"MC1": ("small-only", 1, 2000)}
    kinds |= {f"MC{n}": ("small-priority", 200, 2000) for n in (2, 3)}
    kinds |= {f"MC{n}": ("large-priority", 2000, 5000) for n in (4, 5, 6, 7)}
    return {
        name: make.caster(login.vendor, name, kind, min_size=low, max_size=high, percentage=4)
        for name, (kind, low, high) in kinds.items()
    }


@pytest.fixture
def wakes(casters: dict[str, Mailcaster]) -> Callable[[str], ClaimedJob | None]:
    return lambda name: claim_next_job(casters[name].pk, NOW)


@pytest.fixture
def _queue(login: Credential) -> None:
    """Job 101 with 11,000 e-mails, 102 with 135, 103 with 200,000; dispatched. All are of one sponsor."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER SEQUENCE campaigns_job_id_seq RESTART WITH 101")
    only = make.sponsor()
    for size in (11_000, 135, 200_000):
        make.campaign_with_job(size, status=S.RENDERED, of=login, by=only, messages=False)
    dispatcher.dispatch_rendered(now=NOW)


def status(job_id: int) -> str:
    return Job.objects.get(pk=job_id).status


def left(job_id: int) -> tuple[int, str]:
    job = Job.objects.get(pk=job_id)
    return job.remaining, job.status


def finish(job_id: int) -> None:
    """The caster finishes processing its job."""
    mine = Job.objects.filter(pk=job_id)
    assert move(mine, "send") and move(mine, "drain") and move(mine, "log", mailcaster=None)


@pytest.mark.usefixtures("_queue")
def test_the_run_of_the_document(wakes: Callable[[str], ClaimedJob | None], casters: dict[str, Mailcaster]) -> None:
    assert [status(job) for job in (101, 102, 103)] == [S.P_QUEUED, S.DISPATCHED, S.P_QUEUED]

    # Mailcaster 1 skips 101, which is not small, and takes 102 as a whole.
    assert wakes("MC1") == ClaimedJob(102, 1, None)
    assert status(102) == S.ENQUEUED and left(101) == (11_000, S.P_QUEUED)

    # Mailcaster 4 cuts 104: 4 % of 11,000 is 440, below its minimum of 2000.
    assert wakes("MC4") == ClaimedJob(104, 1, 101)
    assert Job.objects.get(pk=104).size == 2000 and status(104) == S.ENQUEUED
    assert left(101) == (9000, S.P_ASSIGNING) and status(103) == S.P_QUEUED

    # Mailcasters 5, 6 and 7 find 101 still in P_ASSIGNING.
    for name, child, rest in (("MC5", 105, 7000), ("MC6", 106, 5000), ("MC7", 107, 3000)):
        assert wakes(name) == ClaimedJob(child, 1, 101)
        assert Job.objects.get(pk=child).size == 2000 and left(101) == (rest, S.P_ASSIGNING)

    # Small Priority: no small job is there, so they help with 101 (4 % of 3000 is 120, below 200).
    for name, child, rest in (("MC2", 108, 2800), ("MC3", 109, 2600)):
        assert wakes(name) == ClaimedJob(child, 1, 101)
        assert Job.objects.get(pk=child).size == 200 and left(101) == (rest, S.P_ASSIGNING)

    # All seven are processing jobs: none takes a second one.
    assert [wakes(name) for name in casters] == [None] * 7

    # Mailcaster 1 finishes 102 and finds no small job: it goes to sleep.
    finish(102)
    assert wakes("MC1") is None

    # Mailcaster 4 finishes and takes the next 2000.
    finish(104)
    assert wakes("MC4") == ClaimedJob(110, 1, 101)
    assert Job.objects.get(pk=110).size == 2000 and left(101) == (600, S.P_ASSIGNING)

    # Mailcaster 6 takes the remaining 600: 101 is in P_ASSIGNED state.
    finish(106)
    assert wakes("MC6") == ClaimedJob(111, 1, 101)
    assert Job.objects.get(pk=111).size == 600 and left(101) == (0, S.P_ASSIGNED)

    # It is P_FINISHED when all of its children are.
    for child in (105, 107, 108, 109, 110):
        finish(child)
        assert not finish_parent(101) and status(101) == S.P_ASSIGNED
    finish(111)
    assert finish_parent(101) and status(101) == S.P_FINISHED
    assert sum(Job.objects.filter(parent=101).values_list("size", flat=True)) == 11_000

    # Only 103 remains in the queue; Mailcaster 1 stays idle.
    assert left(103) == (200_000, S.P_QUEUED)
    assert wakes("MC1") is None
    for name, size in (("MC4", 5000), ("MC5", 5000), ("MC6", 5000), ("MC7", 5000), ("MC2", 2000), ("MC3", 2000)):
        claimed = wakes(name)
        assert claimed and claimed.parent_id == 103 and Job.objects.get(pk=claimed.job_id).size == size
    assert left(103) == (176_000, S.P_ASSIGNING)


@pytest.mark.usefixtures("_queue")
def test_the_children_are_the_parents_messages_each_once_and_in_order(
    wakes: Callable[[str], ClaimedJob | None], casters: dict[str, Mailcaster]
) -> None:
    parent = Job.objects.get(pk=101)
    expected = parent.first_message
    while Job.objects.get(pk=101).status != S.P_ASSIGNED:
        for name in ("MC4", "MC2", "MC7"):
            claimed = wakes(name)
            if claimed and claimed.parent_id == 101:
                child = Job.objects.get(pk=claimed.job_id)
                assert child.first_message == expected
                expected = child.end
            if claimed:
                finish(claimed.job_id)
    assert expected == parent.end


@pytest.mark.usefixtures("_queue")
def test_job_103_by_one_large_caster_is_63_children(wakes: Callable[[str], ClaimedJob | None]) -> None:
    Job.objects.filter(pk__in=[101, 102]).delete()
    while claimed := wakes("MC4"):
        finish(claimed.job_id)
    sizes = list(Job.objects.filter(parent=103).order_by("id").values_list("size", flat=True))
    assert len(sizes) == 63 and sum(sizes) == 200_000
    assert sizes[:16] == [5000] * 16 and sizes.count(2000) == 24 and sizes[-1] == 888
    assert left(103) == (0, S.P_ASSIGNED)


@pytest.mark.usefixtures("_queue")
def test_no_id_is_lost_between_the_children(wakes: Callable[[str], ClaimedJob | None]) -> None:
    for name in ("MC4", "MC1", "MC4", "MC5", "MC1", "MC6"):
        wakes(name)
    assert list(Job.objects.order_by("id").values_list("id", flat=True)) == [101, 102, 103, 104, 105, 106]
