"""A leaf gives its mailcaster up after its time slice if another sponsor waits, and goes on later where it was."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connection
from django.utils import timezone

from campaigns.engine.casting import mailcaster
from campaigns.engine.claiming import joint, limits
from campaigns.engine.claiming.slices import Slices, StreamSlice
from campaigns.engine.connections import Connections
from campaigns.engine.dispatch.dispatcher import notify_vendors
from campaigns.engine.sending import stream
from campaigns.engine.turns.charges import CHARGE, UnitsGiven, charge_sponsor
from campaigns.engine.turns.leavers import Leaf, Portions, Waiter, choose_leavers
from campaigns.engine.turns.order import VendorClasses
from campaigns.models import ClassTurn, Job, Message, SponsorTurn
from tests import factories
from tests.faults.checker import judge, sums
from tests.faults.sending import CONCURRENCY, being_sent, login, send_the_rest
from tests.programs import sweeping, wait_until, worker
from tests.sandbox import Sandbox
from tests.waiting import result_of
from vendors import configuration
from vendors.limits.values import AT_A_TIME, Limit, Scope
from vendors.mail_classes import MailClass
from vendors.models import Credential, Mailcaster

URGENT, USUAL, BULK = MailClass
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def short(settings: Any) -> None:
    settings.TURN_SECONDS = 0.2


def dispatched(of: Credential, size: int) -> Job:
    return factories.campaign_with_job(size, of=of, by=factories.sponsor(), status="DISPATCHED")


def next_of(caster: Mailcaster) -> Job:
    """The leaf that the mailcaster takes now."""
    claimed = mailcaster.claim_next_job(caster.pk, timezone.now())
    assert claimed
    return Job.objects.get(pk=claimed.job_id)


@pytest.fixture
def credential(vendor: Sandbox) -> Credential:
    """Of a vendor that allows ten calls a second, with one mailcaster."""
    return login(vendor.url, (10, 1.0))


@pytest.fixture
def caster(credential: Credential) -> Mailcaster:
    return factories.caster(credential.vendor, kind="small-priority")


def test_a_leaf_gives_way_to_another_sponsor_and_goes_on_where_it_was(
    vendor: Sandbox, credential: Credential, caster: Mailcaster
) -> None:
    long = dispatched(credential, 60)
    long = next_of(caster)
    with being_sent(long) as sending:
        wait_until(lambda: calls_of(long, vendor), "it is being sent")
        other = dispatched(credential, 3)
        sent = result_of(sending, "its sender ends")
    long.refresh_from_db()
    assert (sent.ours, sent.left, sent.until, sent.logged) == (True, True, None, False)
    assert (long.status, long.waits_for, long.not_before) == ("DISPATCHED", stream.GIVES_WAY, None)
    assert long.next_message and long.first_message < long.next_message < long.end
    called = [entry.reference for entry in vendor.books().entries]
    assert next_of(caster).pk == other.pk, "its turn comes first"
    send_the_rest(other)
    assert next_of(caster).pk == long.pk
    send_the_rest(long)
    assert judge(vendor.books()) == []
    assert long.accepted == 60 and other.accepted == 3
    assert len(set(called)) == len(called)


def test_a_leaf_that_nobody_waits_for_goes_on(vendor: Sandbox, credential: Credential, caster: Mailcaster) -> None:
    dispatched(credential, 30)
    mine = next_of(caster)
    factories.campaign_with_job(3, of=credential, by=mine.sponsor, status="DISPATCHED")  # of the same sponsor
    with being_sent(mine) as sending:
        assert not result_of(sending, "its sender ends").left
    mine.refresh_from_db()
    assert mine.accepted == 30 and mine.fence == 2, "one sender has sent it all"


def test_a_leaf_that_waits_for_the_next_window_gives_way_at_once(
    vendor: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stream sleeps until it is woken: here the window opens after an hour, and nothing else ends the wait."""
    for module in (joint, limits):
        monkeypatch.setattr(module, "PATIENCE", 7200.0)
    monkeypatch.setattr(joint, "FIND_OUT", 7200.0)
    credential = login(vendor.url, (1, 3600.0))
    caster = factories.caster(credential.vendor, kind="small-priority")
    dispatched(credential, 60)
    long = next_of(caster)
    with being_sent(long) as sending:
        wait_until(lambda: calls_of(long, vendor), "it is being sent")
        dispatched(credential, 3)
        assert result_of(sending, "its sender ends").left
    long.refresh_from_db()
    assert (long.status, long.waits_for) == ("DISPATCHED", stream.GIVES_WAY)
    assert len(calls_of(long, vendor)) == 1


def test_a_leaf_gives_way_after_its_portion_however_long_the_time_slice_is(
    vendor: Sandbox, credential: Credential, caster: Mailcaster, settings: Any
) -> None:
    settings.TURN_SECONDS = 3600.0
    dispatched(credential, 200)
    long = next_of(caster)
    with being_sent(long) as sending:
        wait_until(lambda: calls_of(long, vendor), "it is being sent")
        other = dispatched(credential, 200)
        assert result_of(sending, "its sender ends").left
    long.refresh_from_db()
    assert (long.status, long.waits_for) == ("DISPATCHED", stream.GIVES_WAY)
    assert long.next_message and long.next_message < long.end
    assert turns_of(long) == len(calls_of(long, vendor)), "all is charged before the next one is chosen"
    assert next_of(caster).pk == other.pk


@pytest.mark.parametrize("whose", ["its own", "another"])
def test_a_leaf_gives_way_to_a_higher_class_before_its_time_slice_has_passed(
    whose: str, vendor: Sandbox, credential: Credential, caster: Mailcaster, settings: Any
) -> None:
    settings.TURN_SECONDS = 3600.0
    dispatched(credential, 60)
    long = next_of(caster)
    with being_sent(long) as sending:
        wait_until(lambda: calls_of(long, vendor), "it is being sent")
        by = long.sponsor if whose == "its own" else factories.sponsor()
        letter = factories.campaign_with_job(1, of=credential, by=by, status="DISPATCHED", mail_class=URGENT)
        assert result_of(sending, "its sender ends").left
    long.refresh_from_db()
    assert long.status == "DISPATCHED" and long.next_message and long.next_message < long.end
    assert next_of(caster).pk == letter.pk, "the higher class comes first"
    send_the_rest(letter)
    assert next_of(caster).pk == long.pk
    send_the_rest(long)
    assert judge(vendor.books()) == []
    assert sums().total() == long.accepted + letter.accepted == 61


@pytest.mark.parametrize("classes", [(URGENT, BULK), (USUAL, BULK)])
def test_a_leaf_does_not_give_way_to_a_lower_class_within_its_time_slice(
    classes: tuple[int, int], vendor: Sandbox, credential: Credential, caster: Mailcaster, settings: Any
) -> None:
    settings.TURN_SECONDS = 3600.0
    factories.campaign_with_job(30, of=credential, status="DISPATCHED", mail_class=classes[0])
    mine = next_of(caster)
    factories.campaign_with_job(3, of=credential, by=factories.sponsor(), status="DISPATCHED", mail_class=classes[1])
    with being_sent(mine) as sending:
        assert not result_of(sending, "its sender ends").left


def put_off(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(not_before=timezone.now() + timedelta(hours=1))


def paused(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(paused_at=timezone.now())


def exclusive(job: Job) -> None:
    Credential.objects.filter(pk=job.credential_id).update(exclusive=True)


def large(job: Job) -> None:
    Mailcaster.objects.filter(vendor=job.vendor_id).update(kind="small-only")
    Job.objects.filter(pk=job.pk).update(status="P_QUEUED", remaining=job.size)


def free(job: Job) -> None:
    factories.caster(job.vendor, kind="small-only")


@pytest.mark.parametrize("why", [put_off, paused, exclusive, large, free])
def test_a_leaf_does_not_give_way_to_a_job_that_could_not_go(
    why: Any, vendor: Sandbox, credential: Credential, caster: Mailcaster
) -> None:
    dispatched(credential, 30)
    mine = next_of(caster)
    why(dispatched(credential, 3))
    with being_sent(mine) as sending:
        assert not result_of(sending, "its sender ends").left
    mine.refresh_from_db()
    assert mine.accepted == 30 and mine.fence == 2


def test_without_a_time_slice_no_leaf_gives_way(
    vendor: Sandbox, credential: Credential, caster: Mailcaster, settings: Any
) -> None:
    settings.TURN_SECONDS = 0.0
    dispatched(credential, 20)
    mine = next_of(caster)
    dispatched(credential, 3)
    with being_sent(mine) as sending:
        assert not result_of(sending, "its sender ends").left


def test_what_was_given_is_charged_to_the_sponsor(vendor: Sandbox, credential: Credential, caster: Mailcaster) -> None:
    dispatched(credential, 40)
    mine = next_of(caster)
    with being_sent(mine) as sending:
        wait_until(lambda: turns_of(mine) > 0, "it is charged")
        result_of(sending, "its sender ends")
    assert turns_of(mine) <= 40


def turns_of(job: Job) -> float:
    return sum(ClassTurn.objects.filter(vendor=job.vendor_id, sponsor=job.sponsor_id).values_list("given", flat=True))


@pytest.mark.slow("processes")
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "point", ["before_put_back:1", "after_put_back:1", "after_pick:3", "before_notify:3", "after_start:3"]
)
def test_a_worker_killed_as_leaves_give_way_loses_nothing_and_doubles_nothing(point: str, vendor: Sandbox) -> None:
    credential = login(vendor.url, (40, 1.0))
    factories.caster(credential.vendor, kind="small-priority")
    for size in (90, 70, 20):
        dispatched(credential, size)
    queues, short = f"hub,{credential.vendor.queue}", {"TURN_SECONDS": "0.5"}
    with worker(queues=queues, MAILHUB_FAILPOINTS=point, **short) as program:
        notify_vendors([credential.vendor_id])
        wait_until(lambda: program.process.poll() is not None, f"it dies at {point}")
    with worker(queues=queues, **short), sweeping():
        wait_until(lambda: not Job.objects.exclude(status="LOGGED").exists(), "all are logged")
    assert judge(vendor.books()) == []
    assert sums()["in doubt"] <= CONCURRENCY and sums().total() == 180


@pytest.mark.slow("processes")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("point", ["", "before_put_back:1", "after_put_back:1", "after_pick:2", "after_start:2"])
def test_urgent_letters_pass_a_bulk_list_under_a_limit_even_if_its_worker_is_killed(
    point: str, vendor: Sandbox
) -> None:
    """One mailcaster, and a time slice that never ends. The vendor is slow until the letters have gone."""
    credential = login(vendor.url, (2, 1.0))
    factories.caster(credential.vendor, kind="small-priority")
    bulk = dispatched(credential, 200)
    queues, long = f"hub,{credential.vendor.queue}", {"TURN_SECONDS": "3600"}
    letters = []
    more = {"MAILHUB_FAILPOINTS": point} if point else {}
    with worker(queues=queues, **long, **more) as program:
        notify_vendors([credential.vendor_id])
        wait_until(lambda: len(calls_of(bulk, vendor)) >= 3, "the list is being sent")
        for _ in range(3):
            by = factories.sponsor()
            letters.append(factories.campaign_with_job(1, of=credential, by=by, status="DISPATCHED", mail_class=URGENT))
        if point:
            wait_until(lambda: program.process.poll() is not None, f"it dies at {point}")
        else:
            wait_until(lambda: all_logged(letters), "the letters are logged")
            assert len(calls_of(bulk, vendor)) < 200, "the list is not sent yet"
    configuration.replace_rate_limits(credential.vendor, None, [(500, 1.0)])
    with worker(queues=queues, **long), sweeping():
        wait_until(lambda: not Job.objects.exclude(status="LOGGED").exists(), "all are logged")
    assert judge(vendor.books()) == []
    assert sums()["in doubt"] <= CONCURRENCY and sums().total() == 203


def calls_of(job: Job, vendor: Sandbox) -> list[int]:
    """The places of its calls in the vendor's books, which have those of former tests too."""
    uuids = {str(one) for one in Message.objects.filter(campaign=job.campaign_id).values_list("uuid", flat=True)}
    return [number for number, one in enumerate(vendor.books().entries) if one.reference.rpartition("-")[0] in uuids]


def all_logged(jobs: Sequence[Job]) -> bool:
    return not Job.objects.filter(pk__in=[job.pk for job in jobs]).exclude(status="LOGGED").exists()


@pytest.mark.slow("processes")
@pytest.mark.timeout(400)
def test_a_bulk_list_keeps_its_floor_while_an_urgent_one_is_sent(vendor: Sandbox) -> None:
    """With one mailcaster, which the two have in turns. The order of the calls tells how much each was given."""
    credential = login(vendor.url, (10, 1.0))
    factories.caster(credential.vendor, kind="small-priority")
    bulk = dispatched(credential, 200)
    urgent = factories.campaign_with_job(
        200, of=credential, by=factories.sponsor(), status="DISPATCHED", mail_class=URGENT
    )
    with worker(queues=f"hub,{credential.vendor.queue}", TURN_SECONDS="1"), sweeping():
        notify_vendors([credential.vendor_id])
        wait_until(lambda: all_logged([urgent]), "the urgent list is logged")
        configuration.replace_rate_limits(credential.vendor, None, [(500, 1.0)])
        wait_until(lambda: all_logged([bulk]), "the bulk list is logged")
    last = calls_of(urgent, vendor)[-1]
    meanwhile = sum(number < last for number in calls_of(bulk, vendor))
    assert 1 <= meanwhile <= 120, "about a tenth, and a slice more on a slow machine"
    assert judge(vendor.books()) == []


@pytest.mark.slow("processes")
@pytest.mark.timeout(400)
def test_three_sponsors_share_one_mailcaster_by_their_weights(vendor: Sandbox) -> None:
    """Time slices never end. The order of the calls tells how much each was given."""
    credential = login(vendor.url, (40, 1.0))
    factories.caster(credential.vendor, kind="small-priority")
    jobs = [dispatched(credential, 400) for _ in range(3)]
    for weight, job in enumerate(jobs, start=1):
        SponsorTurn.objects.create(vendor=credential.vendor, sponsor_id=job.sponsor_id, weight=weight)
    with worker(queues=f"hub,{credential.vendor.queue}", TURN_SECONDS="3600"), sweeping():
        notify_vendors([credential.vendor_id])
        wait_until(lambda: all_logged(jobs[2:]), "the list of the heaviest is logged")
        configuration.replace_rate_limits(credential.vendor, None, [(1000, 1.0)])
        wait_until(lambda: all_logged(jobs), "all are logged")
    places = [calls_of(job, vendor) for job in jobs]
    first, last = max(calls[0] for calls in places), places[2][-1]
    shares = [sum(first <= place <= last for place in calls) for calls in places]
    for weight, share in enumerate(shares, start=1):
        assert abs(share - sum(shares) * weight / 6) <= 0.05 * sum(shares), shares
    assert judge(vendor.books()) == []


@pytest.mark.parametrize(
    ("messages", "limits_of_vendor", "limits_of_credential", "portion"),
    [
        (200, [(40, 1.0)], [], 10),
        (200, [(40, 1.0), (5_000, 86_400.0)], [], 10),
        (200, [], [(40, 1.0)], 10),
        (200, [(80, 1.0)], [(40, 1.0)], 10),
        (200, [(40, 1.0)], [(80, 1.0)], 10),
        (200, [(5, 60.0)], [], 2),
        (200, [(40, 1.0), (3, AT_A_TIME)], [], 10),
        (200, [], [], None),
        (1, [(40, 1.0)], [], None),
    ],
)
def test_a_stream_knows_its_first_portion_before_its_first_call(
    messages: int, limits_of_vendor: Any, limits_of_credential: Any, portion: int | None, monkeypatch: Any
) -> None:
    """Else the first sponsor would take a whole window before anybody looks, and stand back for long afterwards.

    A letter does not wait for a look.
    """
    monkeypatch.setattr("campaigns.engine.claiming.slices.QUICK", 60.0)  # a look is new for so long
    of = factories.credential()
    for weight, status in ((1, "SENDING"), (2, "DISPATCHED"), (3, "DISPATCHED")):
        job = factories.campaign_with_job(200, of=of, by=factories.sponsor(), status=status)
        SponsorTurn.objects.create(vendor=of.vendor, sponsor_id=job.sponsor_id, weight=weight)
        if weight == 1:
            sending = job
    taken = {"mailcaster": factories.caster(of.vendor, kind="small-priority"), "status_at": timezone.now(), "fence": 2}
    Job.objects.filter(pk=sending.pk).update(**taken)
    terms = ([Limit(*one) for one in given] for given in (limits_of_vendor, limits_of_credential))
    scope = Scope(of.vendor_id, of.pk, 1, *(tuple(limits) for limits in terms))

    async def begin() -> tuple[bool, int | None]:
        connections = Connections()
        try:
            slices = Slices(connections.claims)
            place = StreamSlice(slices, sending.pk, of.vendor_id, sending.sponsor_id, BULK, messages)
            place.note_scope(scope)
            waits = place.awaits_look
            await slices.charge_and_tell([place])
            assert not place.awaits_look and not place.gives_way
            later = StreamSlice(slices, sending.pk, of.vendor_id, sending.sponsor_id, BULK, messages)
            later.note_scope(scope)
            assert not later.awaits_look and (not waits or later.portion == place.portion), "it has just been looked"
            return waits, place.portion
        finally:
            await connections.close()

    assert async_to_sync(begin)() == (portion is not None, portion)


@pytest.mark.parametrize(("weight", "owed"), [(1, 6.0), (3, 2.0)])
def test_what_was_given_before_others_came_is_no_debt_though_more_follows_in_the_same_second(
    weight: int, owed: float
) -> None:
    """A whole window may be given in the second in which others come. Only what is given after that look is owed."""
    of = factories.credential()
    leaf = factories.campaign_with_job(200, of=of, by=factories.sponsor(), status="SENDING", fence=2)
    dispatched(of, 200)
    SponsorTurn.objects.create(vendor=of.vendor, sponsor_id=leaf.sponsor_id, weight=weight)
    charge_sponsor(of.vendor_id, leaf.sponsor_id, 30)
    given, key = UnitsGiven(), (of.vendor_id, leaf.sponsor_id, int(BULK))
    given.add_units(*key, 60, alone=True)
    given.add_units(*key, 6)
    for _ in range(2):  # it could not be charged, and is put back
        params = given.take_params(lambda *_: 0.0)
        assert params and given.take_params(lambda *_: 0.0) is None
        given.put_back(params)
    params = given.take_params(lambda *_: 0.0)
    with connection.cursor() as cursor:
        cursor.execute(CHARGE, params)
    turn = ClassTurn.objects.get(vendor=of.vendor, sponsor_id=leaf.sponsor_id)
    assert (turn.given, turn.given - turn.clock) == (96 / weight, owed)


@pytest.mark.parametrize("rate", [0.0, 40.0, 230.0])
def test_a_rate_that_was_measured_over_a_burst_makes_no_portion_longer(rate: float) -> None:
    """A sponsor's first calls have a whole window at once. Its rate is no higher than what the limit allows."""
    leaf, waiters = LEAF._replace(given=0.0, rate=rate), [WAITER._replace(sponsor=n, weight=n) for n in (2, 3)]
    assert [Portions(VendorClasses(), waiters, [leaf], 60.0).of(BULK, n) for n in (1, 2, 3)] == [10, 20, 30]


SMALL, LARGE = "small-only", "large-only"
LEAF = Leaf(1, 1, 1, 100.0, 2.0, "small-priority", 9.0)
WAITER = Waiter(2, 1, 0.0, has_small=True, has_large=False)


@pytest.mark.parametrize(
    ("leaves", "waiters", "idle", "leavers"),
    [
        ([LEAF], [WAITER], [], {1}),
        ([LEAF], [WAITER], [SMALL], set()),
        ([LEAF], [WAITER], [LARGE], {1}),
        ([LEAF], [], [], set()),
        ([LEAF._replace(age=4.0)], [WAITER], [], set()),
        ([LEAF._replace(kind=LARGE)], [WAITER], [], set()),
        ([LEAF], [WAITER._replace(has_small=False)], [], set()),
        ([LEAF], [WAITER._replace(sponsor=1)], [], set()),
        ([LEAF], [WAITER._replace(given=101.0)], [], set()),
        ([LEAF, LEAF._replace(job=2, age=20.0)], [WAITER], [], {2}),
        ([LEAF, LEAF._replace(job=2, sponsor=3, given=300.0, age=6.0)], [WAITER], [], {2}),
        ([LEAF, LEAF._replace(job=2)], [WAITER, WAITER._replace(sponsor=3)], [], {1, 2}),
        ([LEAF._replace(age=1.5)], [WAITER], [], set()),
        ([LEAF._replace(age=1.5), LEAF._replace(job=2, age=0.5)], [WAITER._replace(given=900.0)], [], {1}),
        ([LEAF._replace(age=0.5), LEAF._replace(job=2, age=0.5)], [WAITER], [], set()),
        (
            [LEAF._replace(given=900.0), LEAF._replace(job=2, sponsor=3, age=6.0), LEAF._replace(job=3, sponsor=3)],
            [WAITER],
            [],
            {3},
        ),
        ([LEAF, LEAF._replace(job=2, sponsor=2)], [WAITER], [], set()),
        ([LEAF._replace(age=2.5)], [WAITER._replace(sponsor=number) for number in (2, 3)], [], {1}),
        ([LEAF._replace(age=1.5)], [WAITER._replace(sponsor=number) for number in range(2, 30)], [], set()),
        ([LEAF._replace(age=0.1, is_spent=True)], [WAITER], [], {1}),
        ([LEAF._replace(age=0.1, is_spent=True)], [WAITER._replace(given=101.0)], [], set()),
        ([LEAF._replace(age=0.1, is_spent=True), LEAF._replace(job=2, sponsor=2)], [WAITER], [], set()),
        ([LEAF._replace(age=1.5)], [WAITER._replace(given=101.0, mail_class=URGENT)], [], {1}),
        ([LEAF._replace(age=1.5)], [WAITER._replace(sponsor=1, mail_class=USUAL)], [], {1}),
        ([LEAF._replace(age=0.5)], [WAITER._replace(mail_class=URGENT)], [], set()),
        ([LEAF], [WAITER._replace(mail_class=URGENT)], [SMALL], set()),
        ([LEAF._replace(mail_class=URGENT)], [WAITER], [], set()),
        ([LEAF._replace(mail_class=USUAL), LEAF._replace(job=2)], [WAITER._replace(mail_class=URGENT)], [], {2}),
    ],
)
def test_who_gives_way(
    leaves: Sequence[Leaf], waiters: Sequence[Waiter], idle: Sequence[str], leavers: set[int]
) -> None:
    assert choose_leavers(VendorClasses(), waiters, leaves, idle, 5.0) == leavers


def test_lower_classes_give_up_mailcasters_that_are_kept_for_letters() -> None:
    """The sponsor with two leaves loses one. Nobody takes the idle mailcaster, so others get the place of a leaf."""
    leaves = [LEAF, LEAF._replace(job=2), LEAF._replace(job=3, sponsor=2), LEAF._replace(job=4, mail_class=URGENT)]
    assert choose_leavers(VendorClasses(), [], leaves, [], 5.0, lower_most=3) == set()
    assert choose_leavers(VendorClasses(), [], leaves, [], 5.0, lower_most=2) == {2}
    assert choose_leavers(VendorClasses(), [WAITER], leaves, [LEAF.kind], 5.0, lower_most=4) == set()
    assert choose_leavers(VendorClasses(), [WAITER], leaves, [LEAF.kind], 5.0, lower_most=3) == {2}


DUE, SPENT = {BULK: (3.0, 5.0)}, {BULK: (-6.0, 5.0)}


@pytest.mark.parametrize(
    ("credits", "leaves", "waiters", "leavers"),
    [
        (DUE, [LEAF], [WAITER._replace(mail_class=URGENT)], set()),
        (SPENT, [LEAF], [WAITER._replace(mail_class=URGENT)], {1}),
        (DUE, [LEAF, LEAF._replace(job=2)], [WAITER._replace(mail_class=URGENT)], {2}),
        (DUE, [LEAF._replace(mail_class=URGENT)], [WAITER], {1}),
        (DUE, [LEAF._replace(mail_class=URGENT, age=4.0)], [WAITER], set()),
        (SPENT, [LEAF._replace(mail_class=URGENT)], [WAITER], set()),
    ],
)
def test_who_gives_way_while_a_lower_class_has_its_floor(
    credits: Any, leaves: Sequence[Leaf], waiters: Sequence[Waiter], leavers: set[int]
) -> None:
    assert choose_leavers(VendorClasses(credits=credits), waiters, leaves, [], 5.0) == leavers
    if credits is DUE and leavers == set() and leaves[0].mail_class == BULK:
        assert choose_leavers(VendorClasses(floor=0, credits=credits), waiters, leaves, [], 5.0) == {1}


def test_where_a_limit_binds_nobody_owes_what_he_was_given_while_nobody_waited_for_a_turn() -> None:
    """The throttle has shared that out by weights. A sponsor that comes later starts beside them, not before them."""
    of = factories.credential()
    anton, velma, carla = (factories.sponsor() for _ in range(3))
    for sponsor in (anton, velma):
        leaf = factories.campaign_with_job(9, of=of, by=sponsor, status="SENDING", fence=2)
        taken = {"mailcaster": factories.caster(of.vendor, kind="small-priority"), "status_at": timezone.now()}
        Job.objects.filter(pk=leaf.pk).update(**taken)
        factories.campaign_with_job(9, of=of, by=sponsor, status="DISPATCHED")

    def owes() -> bool:
        turns = ClassTurn.objects.filter(vendor=of.vendor)
        return turns.get(sponsor=anton).given > max(turns.values_list("clock", flat=True))

    async def charged(slices: Slices, place: StreamSlice, units: int) -> bool:
        place.note_bound()
        await slices.charge_and_tell([place])
        place.charge_units(units)
        await slices.charge_and_tell([place])
        return await sync_to_async(owes)()

    async def live() -> list[bool]:
        connections = Connections()
        slices = Slices(connections.claims)
        place = StreamSlice(slices, 1, of.vendor_id, anton.pk, BULK, 9)
        place.began -= 10
        try:
            await charged(slices, place, 1)  # its row is there
            first = await charged(slices, place, 60)
            await sync_to_async(factories.campaign_with_job)(9, of=of, by=carla, status="DISPATCHED")
            return [first, await charged(slices, place, 5)]
        finally:
            await connections.close()

    assert async_to_sync(live)() == [False, True]
