"""Step 8, reconcile: settles doubts by a safe repeat with the same key, by a look-up, or else by an operator.

It never guesses. A delivery report may settle a doubt earlier (engine.ground_truth.accept). Each adapter declares its
abilities. A message called at another destination than its credential calls now waits for a person.
"""

import logging
from dataclasses import dataclass
from typing import Any, cast

import uvloop
from django.conf import settings
from django.db import connection
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from campaigns.engine import failpoints, ground_truth, ports, quiet_hours, sending_hours
from campaigns.engine.claiming.letters import ClaimedMessage
from campaigns.engine.connections import SharedRows, open_connection
from campaigns.engine.doubts import queries
from campaigns.engine.doubts.calls import CredentialClosed, SingleCalls, SingleOutcome
from campaigns.engine.doubts.queries import Doubt
from campaigns.engine.ground_truth import GIVE_UP
from campaigns.engine.letter_outcomes import follow_answer
from campaigns.engine.suppressed.digests import digest_address, digest_key
from campaigns.models import Campaign, Message
from vendors import adapters, alarms, redis_clients, shut
from vendors.adapters.base import Adapter, Letter
from vendors.limits.throttle import AsyncThrottle
from vendors.limits.values import Scope
from vendors.models import Credential, Vendor
from vendors.outcomes import Accepted, InDoubt, NotSent, Refused

log = logging.getLogger(__name__)

MOST = 50  # doubts settled for a credential in one run
LEASE = 300.0  # seconds of the lease, on top of the time until a call has ended and can be looked up
MARGIN = 60.0  # seconds before its expiry in which a key is not trusted


@dataclass(frozen=True, slots=True)
class Case:
    """Everything needed to settle the doubts of one credential."""

    vendor: Vendor
    adapter: Adapter
    calls: SingleCalls
    rows: Any
    files: Any  # from ports.letters.cache_files
    keys: Any  # from ports.letters.read_keys

    @property
    def known_after(self) -> float:
        """Seconds after a call starts until the vendor can be asked about it."""
        return self.calls.hold_seconds + self.adapter.capabilities.settle_delay


def reconcile_due_doubts() -> int:
    """Settle due doubts, one credential after another. Returns how many were tried."""
    with connection.cursor() as cursor:
        cursor.execute(queries.SET_ASIDE)
    now = timezone.now()
    due = Message.objects.filter(in_doubt_at__isnull=False, settle_at__lte=now)
    own = due.filter(campaign__credential=OuterRef("pk"))
    routed = due.filter(campaign__routed=True, campaign__jobs__credential=OuterRef("pk"))
    is_open = Q(retry_after_until=None) | Q(retry_after_until__lte=now) | Q(braked_at__isnull=False)
    logins = Credential.objects.filter(is_open, Exists(own) | Exists(routed)).alias(shut=shut.OF_LOGINS)
    return sum(_reconcile_credential(login) for login in logins.filter(shut=None).select_related("vendor"))


def _reconcile_credential(login: Credential) -> int:
    """Reconcile one credential. An error does not affect the others."""
    try:
        return uvloop.run(_open_credential(login, digest_key(), ports.letters.read_keys()))
    except Exception:
        alarms.DOUBTS_NOT_SETTLED.log(log, login, exc_info=True)
        return 0


async def _open_credential(login: Credential, secret: bytes | None, keys: Any) -> int:
    vendor: Any = login.vendor
    adapter = adapters.load(vendor.adapter).for_credential(vendor.settings, cast(Any, login.secret))
    rows = await open_connection()
    redis = redis_clients.connect_async(settings.REDIS_URL)
    calls = SingleCalls(adapter, login, AsyncThrottle(redis), rows)
    contents = SharedRows(1)  # opened for the first letter with a file
    try:
        await adapter.open()
        case = Case(vendor, adapter, calls, rows, ports.letters.cache_files(contents), keys)
        return await _settle_due_doubts(case, login, secret)
    finally:
        await adapter.close()
        await contents.close(float("inf"))
        await redis.aclose()
        await rows.close()


async def _settle_due_doubts(case: Case, login: Credential, secret: bytes | None) -> int:
    """Settle doubts while the credential may be used; the rest stay due. secret: the key of the digests."""
    doubts = await queries.lease_due_doubts(case.rows, login.pk, MOST, LEASE + case.known_after)
    if secret:
        doubts = [
            await queries.compare_suppressions(
                case.rows, one, digest_address(secret, case.vendor.channel, one.recipient)
            )
            for one in doubts
        ]
    failpoints.here("after_due")
    for number, doubt in enumerate(doubts):
        try:
            await _settle_doubt(case, doubt)
        except CredentialClosed as error:
            reason, rest = str(error), doubts[number:]
        else:
            reason, rest = case.calls.over, doubts[number + 1 :]
        if reason:
            log.info("credential %s: %s doubts wait: %s", login, len(rest), reason)
            await queries.give_doubts_back(case.rows, rest)
            return len(doubts) - len(rest)
    return len(doubts)


async def _settle_doubt(case: Case, doubt: Doubt) -> None:
    can = case.adapter.capabilities
    over = case.known_after - doubt.age  # until then the first call may still be running
    if over > 0:
        await queries.postpone_doubt(case.rows, doubt, over + 1, None)
    elif doubt.suppressed:
        await _settle_suppressed(case, doubt)
    elif (
        can.dedupe and _seconds_key_is_known(can.dedupe_ttl) > doubt.age and (doubt.repeatable or can.lookup == "none")
    ):
        await _repeat_call(case, doubt, young=_seconds_key_is_known(can.dedupe_ttl))
    elif can.lookup == "strong" and doubt.disproved:
        await _call_again(case, doubt)
    elif can.lookup != "none":
        await _look_message_up(case, doubt)
    else:
        await queries.postpone_doubt(case.rows, doubt, None, None)


async def _call_again(case: Case, doubt: Doubt) -> None:
    """Call a message that the vendor does not have, unless its recipient is suppressed by now."""
    if doubt.suppressed:
        await ground_truth.suppress_doubted(case.rows, doubt.id, doubt.suppressed)
    else:
        await _repeat_call(case, doubt, young=None)


async def _settle_suppressed(case: Case, doubt: Doubt) -> None:
    """Look up a message to a suppressed recipient; never repeat it."""
    if doubt.disproved:
        await _call_again(case, doubt)
    elif case.adapter.capabilities.lookup == "none":
        await queries.postpone_doubt(case.rows, doubt, None, None)
    else:
        await _look_message_up(case, doubt)


def _seconds_key_is_known(ttl: float | None) -> float:
    """Return for how many seconds after a call the vendor is certain to know its key."""
    return queries.FOR_EVER if ttl is None else ttl - MARGIN


async def _look_message_up(case: Case, doubt: Doubt) -> None:
    found = await case.calls.make_call(
        1,
        lambda scope, grant: queries.allow_look_up(case.rows, scope, doubt, case.calls.hold_seconds, grant=grant),
        lambda: case.adapter.look_up(doubt.vendor_reference),
    )
    match found:
        case Accepted(vendor_id):
            await ground_truth.accept_messages(case.rows, [(doubt.id, vendor_id, doubt.resend_no)])
        case None if case.adapter.capabilities.lookup == "strong":
            await queries.record_disproved(case.rows, doubt)
            await _call_again(case, doubt)
        case None:
            await _try_later(case, doubt, "look-up: not found, which proves nothing")
        case _:
            await _put_doubt_off(case, doubt, found, "look-up")


async def _repeat_call(case: Case, doubt: Doubt, *, young: float | None) -> None:
    """Call the message again. young: as in queries.allow_repeat; None: this call's answer alone settles the doubt."""
    campaign, now = await queries.load_campaign_and_time(case.rows, doubt)
    exempt = quiet_hours.is_exempt(case.vendor.channel, campaign)
    of_all = None if exempt else await quiet_hours.read_quiet_hours(case.rows, campaign.sponsor_id)
    quiet = [one for one in (of_all, quiet_hours.quiet_hours_of_campaign(campaign)) if one]
    zones = quiet_hours.zones_of_recipient(case.vendor.channel, doubt.recipient, doubt.params) if quiet else ()
    waits = [sending_hours.campaign_opens_at(campaign, now), *(one.opens_in(zones, now) for one in quiet)]
    if opening := max((at for at in waits if at), default=None):
        return await queries.postpone_doubt(case.rows, doubt, (opening - now).total_seconds(), None)
    letter = await _make_letter(case, campaign, doubt)
    if letter is None:
        return await _try_later(case, doubt, None)
    cost = max(1, await case.adapter.weigh(letter))
    ends = [sending_hours.closes_at(campaign, now), *(one.steady_interval(now)[1] for one in quiet)]
    closes = min((at for at in ends if at), default=None)

    async def start_repeat() -> SingleOutcome:
        failpoints.here("before_repeat")
        outcome = follow_answer((await case.adapter.send([letter]))[0], campaign)
        failpoints.here("after_repeat")
        return outcome

    async def allow_this_repeat(scope: Scope, grant: str) -> bool | None:
        hold, probe = case.calls.hold_seconds, case.calls.probe
        return await queries.allow_repeat(
            case.rows, scope, doubt, hold, units=cost, young=young, closes=closes, grant=grant, probe=probe
        )

    outcome = await case.calls.make_call(cost, allow_this_repeat, start_repeat, letter.recipient, is_repeat=True)
    failpoints.here("before_settle")
    match outcome:
        case Accepted(vendor_id):
            await ground_truth.accept_messages(case.rows, [(doubt.id, vendor_id, doubt.resend_no)])
        case Refused() if young is None:
            await ports.suppressions.suppress_recipient(case.vendor, campaign, doubt.recipient, outcome)
            await ground_truth.refuse_doubted(case.rows, [(doubt.id, outcome)])
        case Refused(code):
            await _try_later(case, doubt, f"repeat refused ({code}), the first call is still in doubt")
        case _:
            await _put_doubt_off(case, doubt, outcome, "repeat")
    failpoints.here("after_settle")
    return None


async def _make_letter(case: Case, campaign: Campaign, doubt: Doubt) -> Letter | None:
    message = ClaimedMessage(doubt.id, doubt.vendor_reference, doubt.recipient, doubt.params)
    content = ports.letters.compile_content(campaign)
    made = ports.letters.prepare_letters(campaign, content, case.vendor, case.adapter, case.keys).letter(message)
    files = ports.letters.files_of(campaign, case.files)
    if isinstance(made, Refused) or files is None:
        return made if isinstance(made, Letter) else None
    [enclosed] = await files.enclose([made])
    return enclosed if isinstance(enclosed, Letter) else None


async def _put_doubt_off(case: Case, doubt: Doubt, answer: SingleOutcome, what: str) -> None:
    """Put the doubt off. An answer about the whole credential never gives up a doubt, however old."""
    match answer:
        case NotSent(reason, retry_after, scope="credential"):
            await queries.postpone_doubt(case.rows, doubt, retry_after or 0.0, f"{what}: {reason}")
        case NotSent(reason, retry_after):
            await _try_later(case, doubt, f"{what}: {reason}", at_least=retry_after or 0.0)
        case InDoubt(reason):
            await _try_later(case, doubt, f"{what}: {reason}", at_least=case.known_after)


async def _try_later(case: Case, doubt: Doubt, note: str | None, *, at_least: float = 10.0) -> None:
    wait = max(min(3600.0, max(10.0, doubt.age / 4)), at_least)
    await queries.postpone_doubt(case.rows, doubt, None if doubt.age > GIVE_UP else wait, note)
