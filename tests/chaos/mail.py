"""The mail of the chaos run, and its progress."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import Error, connection
from django.db.models import Exists, F, OuterRef
from kombu.exceptions import OperationalError as BrokerError
from redis import RedisError

from campaigns.engine.dispatch import dispatcher
from campaigns.engine.dispatch.dispatcher import notify_vendors
from campaigns.models import Job, Message, Sponsor, SponsorTurn
from campaigns.models.states import DONE
from campaigns.operations import actions
from tests import factories
from tests.sandbox import Sandbox
from vendors.models import Vendor

CONCURRENCY = 8
CASTERS = 2  # of a vendor
LATENCY_MS = 30.0
AWAY = (Error, BrokerError, RedisError, ConnectionError)  # errors raised while a store is away


@dataclass(frozen=True)
class StormVendor:
    """A vendor with its own books and its limit."""

    vendor: Vendor
    sandbox: Sandbox
    units: int
    seconds: float
    can_tell: bool  # by its settings: it knows our references, or can be asked
    weights: dict[int, int]  # of its sponsors, by id


def storm_vendor(
    sandbox: Sandbox, units: int, seconds: float, recipients: int, weights: Sequence[int] = (1,), **settings: object
) -> StormVendor:
    """A vendor with its mailcasters, and for each sponsor one large job for them to cut, and five small ones.

    weights: of the sponsors. Each has as much of the mail as it has of the weights, so that all are done together.
    """
    settings = {"url": sandbox.url, "timeout": 3, "settle_delay": 1, "concurrency": CONCURRENCY, **settings}
    vendor = factories.vendor(settings=settings, limits=[(units, seconds)], small_audience_threshold=100)
    for number in range(1, CASTERS + 1):
        factories.caster(vendor, f"MC{number}", "large-priority", min_size=100, max_size=400, percentage=10)
    login = factories.credential(vendor)
    sponsors = {factories.sponsor().pk: weight for weight in weights}
    for sponsor, weight in sponsors.items():
        SponsorTurn.objects.create(sponsor_id=sponsor, vendor=vendor, weight=weight)
        for many in (recipients * weight // sum(weights), 20, 20, 20, 20, 20):
            to = [f"{name}-{n}@sandbox.example" for name in (factories.unique("to"),) for n in range(many)]
            factories.campaign_with_job(to, of=login, by=Sponsor.objects.get(pk=sponsor), status="RENDERED")
    can_tell = bool(settings.keys() & {"dedupe", "lookup"})
    return StormVendor(vendor, sandbox, units, seconds, can_tell, sponsors)


# Counts what came into doubt in the truth, whatever becomes of it.
WATCH = """
CREATE TABLE chaos_doubt (message_id bigint NOT NULL);
CREATE FUNCTION chaos_doubt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos_doubt VALUES (NEW.id);
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_doubt AFTER UPDATE ON campaigns_message FOR EACH ROW
    WHEN (OLD.in_doubt_at IS NULL AND NEW.in_doubt_at IS NOT NULL) EXECUTE FUNCTION chaos_doubt();
"""


def doubted() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM chaos_doubt")
        return int(cursor.fetchone()[0])


def begin() -> None:
    with connection.cursor() as cursor:
        cursor.execute(WATCH)
    dispatcher.dispatch_rendered()
    notify_vendors(Vendor.objects.values_list("pk", flat=True))


def all_sent() -> bool:
    return not Job.objects.exclude(status__in=DONE).exists()


def doubts() -> int:
    return Message.objects.filter(in_doubt_at__isnull=False).count()


def asked(vendors: list[StormVendor]) -> bool:
    """Nothing is in doubt that the vendor could be asked about; what is, it is asked about now.

    A job of which nothing but doubts was left when it was stopped stays stopped, for there is nothing to retry, and
    nothing is called for it (promise P5): its doubts wait for a person.
    """
    able = [one.vendor.pk for one in vendors if one.can_tell]
    stopped = Job.objects.filter(campaign=OuterRef("campaign"), stopped_at__isnull=False).filter(
        first_message__lte=OuterRef("pk"), first_message__gt=OuterRef("pk") - F("size")
    )
    doubts = Message.objects.filter(in_doubt_at__isnull=False, campaign__credential__vendor__in=able)
    doubts = doubts.exclude(Exists(stopped))
    ids = list(doubts.values_list("pk", flat=True))
    if ids:
        actions.ask_again(ids)
    return not ids


def state() -> tuple[object, ...]:
    """Return a value that changes with any progress."""
    jobs = Job.objects.order_by("pk").values_list("pk", "status", "fence", "accepted", "in_doubt", "remaining")
    return (*jobs, doubts())
