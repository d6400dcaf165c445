"""Posts events to webhooks until they are accepted: ten tries in three days, hundreds of calls in flight.

A notified process posts all due calls, and those that fall due meanwhile. A receiver that does not answer does not
delay others. A sponsor may use half of the capacity that the others leave free, and a webhook only a few calls at a
time. A webhook that keeps timing out is suspended, with its calls kept, until it answers a single trial call.
"""

import logging
import queue
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from campaigns.engine.threads import LoopThread
from campaigns.integrations.webhooks import events
from campaigns.models import Webhook, WebhookCall
from vendors import alarms, webhook_http
from vendors.said import Said, gettext_noop
from vendors.webhook_http import PostResult

log = logging.getLogger(__name__)

IN_FLIGHT = 256  # calls of one process
OF_A_WEBHOOK = 8  # of IN_FLIGHT, for each webhook; one call while suspended and on trial
TIMEOUTS = 3  # in a row before a webhook is suspended
SUSPENDED = (30.0, 3600.0)  # seconds: the first, doubled after each timeout, and the longest
TRIES = 10
WAITS = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)  # seconds between the ten tries: 75 h 35 min
GIVE_UP = timedelta(days=4)  # until a suspended webhook's calls are given up
EARLY = timedelta(seconds=1)  # tolerance for clocks that differ
LEASE = timedelta(seconds=2 * webhook_http.DEADLINE)  # a process without a recorded result by then has died
LOOK = 0.25  # seconds between two look-ups of due calls
GONE = 410


@dataclass(frozen=True, slots=True)
class DueCall:
    """A due call. on_trial: its webhook is suspended and gets one call at a time."""

    id: int
    webhook_id: int
    sponsor_id: int
    on_trial: bool


# Several processes may read this together. A call taken by another one has stopped being due.
DUE = """
SELECT c.id, h.id, h.sponsor_id, h.timeouts >= %(timeouts)s
FROM campaigns_webhook h CROSS JOIN LATERAL (
    SELECT id, next_at FROM campaigns_webhookcall WHERE webhook_id = h.id AND next_at <= %(now)s
    ORDER BY next_at LIMIT CASE WHEN h.timeouts >= %(timeouts)s THEN 1 ELSE %(each)s END
) c
WHERE h.enabled AND (h.suspended_until IS NULL OR h.suspended_until <= %(now)s) AND h.id <> ALL(%(full)s)
ORDER BY c.next_at
"""
# The try counts from here on and the next one has its time. If the process dies now, the call counts as failed.
TAKE = """
WITH free AS (
    SELECT id FROM campaigns_webhookcall WHERE id = ANY(%(ids)s) AND next_at <= %(now)s FOR UPDATE SKIP LOCKED
)
UPDATE campaigns_webhookcall c SET tries = c.tries + 1, next_at = clock_timestamp() + %(lease)s
FROM free WHERE c.id = free.id RETURNING c.id
"""


def deliver_due(stopping: Callable[[], bool] = bool) -> int:
    """Post calls until none is due; return how many. stopping: once it returns True, only open calls are finished."""
    made, flight = 0, CallsInFlight()
    try:
        while True:
            taken = [] if stopping() else take_due_calls(flight.open)
            for call in taken:
                flight.start_call(call)
            made += len(taken)
            if not flight.open:
                return made
            record_answers(flight.take_answered())
    finally:
        flight.close()


class CallsInFlight:
    """The calls in flight of one process, in their own event loop."""

    def __init__(self) -> None:
        self.open: dict[int, WebhookCall] = {}
        self._answers: queue.SimpleQueue[tuple[int, PostResult]] = queue.SimpleQueue()
        self._loop: LoopThread | None = None

    def start_call(self, call: WebhookCall) -> None:
        self._loop = self._loop or LoopThread()
        self.open[call.pk] = call
        url, body, headers = call.webhook.url, call.body.encode(), _signed_headers(call)

        async def post_call() -> None:
            answer = PostResult(None, "not called")
            try:
                answer = await webhook_http.post_once(url, body, headers)
            finally:
                self._answers.put((call.pk, answer))

        self._loop.start_coroutine(post_call())

    def take_answered(self) -> list[tuple[WebhookCall, PostResult]]:
        """Return the answered calls, waiting at most LOOK seconds for the first."""
        found: list[tuple[WebhookCall, PostResult]] = []
        try:
            id, answer = self._answers.get(timeout=LOOK)
            while True:
                found.append((self.open.pop(id), answer))
                id, answer = self._answers.get_nowait()
        except queue.Empty:
            return found

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()


def take_due_calls(in_flight: dict[int, WebhookCall]) -> list[WebhookCall]:
    """Take calls that may start now beside those in flight. Only one process takes each call."""
    if len(in_flight) >= IN_FLIGHT:
        return []
    of_webhooks = Counter(call.webhook_id for call in in_flight.values())
    of_sponsors = Counter(call.webhook.sponsor_id for call in in_flight.values())
    facts: dict[str, Any] = {
        "now": timezone.now() + EARLY,
        "timeouts": TIMEOUTS,
        "each": OF_A_WEBHOOK,
        "full": [id for id, calls in of_webhooks.items() if calls >= OF_A_WEBHOOK],
        "lease": LEASE,
    }
    with connection.cursor() as cursor:
        cursor.execute(DUE, facts)
        due = [DueCall(*row) for row in cursor.fetchall()]
        ids = [one.id for one in share_calls(due, of_webhooks, of_sponsors)]
        if not ids:
            return []
        cursor.execute(TAKE, {**facts, "ids": ids})
        taken = [id for (id,) in cursor.fetchall()]
    return list(WebhookCall.objects.filter(pk__in=taken).select_related("webhook").order_by("pk"))


def share_calls(due: Sequence[DueCall], of_webhooks: Counter[int], of_sponsors: Counter[int]) -> Iterator[DueCall]:
    """Choose calls, oldest first, one sponsor after the other, until none may have more. Changes no counter."""
    hooks, sponsors = Counter(of_webhooks), Counter(of_sponsors)
    waiting: dict[int, deque[DueCall]] = defaultdict(deque)
    for one in due:
        waiting[one.sponsor_id].append(one)
    while waiting:
        for sponsor, queued in list(waiting.items()):
            others = sponsors.total() - sponsors[sponsor]
            if not queued or sponsors[sponsor] >= (IN_FLIGHT - others) // 2:
                del waiting[sponsor]
                continue
            one = queued.popleft()
            if hooks[one.webhook_id] < (1 if one.on_trial else OF_A_WEBHOOK):
                hooks[one.webhook_id] += 1
                sponsors[sponsor] += 1
                yield one


def _signed_headers(call: WebhookCall) -> dict[str, str]:
    moment, name = datetime.now(UTC), f"evt_{call.event.hex}"
    return {
        "webhook-id": name,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": events.sign_event(call.webhook, name, moment, call.body),
    }


@transaction.atomic
def record_answers(answers: Iterable[tuple[WebhookCall, PostResult]]) -> None:
    """Record the results of these calls. Some may have been removed meanwhile, together with their webhook."""
    done = list(answers)
    hooks = _hold_webhooks({call.webhook_id for call, _ in done})
    for call, answer in done:
        _set_result(call, answer)
        if hook := hooks.get(call.webhook_id):
            _count_timeouts(hook, answer)
    WebhookCall.objects.bulk_update(
        [call for call, _ in done], ["http_status", "result", "taken_at", "next_at"], batch_size=IN_FLIGHT
    )
    Webhook.objects.bulk_update(hooks.values(), ["timeouts", "suspended_until"])
    for hook_id in {call.webhook_id for call, answer in done if answer.status == GONE} & hooks.keys():
        events.disable_webhook(hooks[hook_id], Said(gettext_noop("the receiver answered 410 Gone")))


def _hold_webhooks(ids: set[int]) -> dict[int, Webhook]:
    """Lock the webhooks before their calls, in the same order as `remove`."""
    return {row.pk: row for row in Webhook.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk")}


def _set_result(call: WebhookCall, answer: PostResult) -> None:
    call.http_status, call.result = answer.status, answer.note[:255]
    if answer.is_taken:
        call.taken_at, call.next_at = timezone.now(), None
    elif call.tries >= TRIES:
        call.next_at = None
    else:
        wait = max(WAITS[call.tries - 1] * random.uniform(1, 1.1), answer.retry_after)
        call.next_at = timezone.now() + timedelta(seconds=wait)


def _count_timeouts(hook: Webhook, answer: PostResult) -> None:
    """Count timeouts; calls already in flight at a suspension do not prolong it."""
    if not answer.timed_out:
        hook.timeouts, hook.suspended_until = 0, None
    elif not (hook.suspended_until and hook.suspended_until > timezone.now()):
        hook.timeouts += 1
        if hook.timeouts >= TIMEOUTS:
            seconds = min(SUSPENDED[1], SUSPENDED[0] * 2.0 ** (hook.timeouts - TIMEOUTS))
            hook.suspended_until = timezone.now() + timedelta(seconds=seconds)
            alarms.WEBHOOK_SUSPENDED.log(log, hook.pk, seconds)


def find_next_call() -> datetime | None:
    """Return the time of the next call of any webhook in service; it may be past."""
    free = Q(webhook__suspended_until=None) | Q(webhook__suspended_until__lte=timezone.now())
    waiting = WebhookCall.objects.filter(free, next_at__isnull=False, webhook__enabled=True)
    return waiting.order_by("next_at").values_list("next_at", flat=True).first()


def give_up() -> int:
    """Give up calls that have waited GIVE_UP for a suspended webhook; return how many."""
    held = WebhookCall.objects.filter(next_at__isnull=False, webhook__suspended_until__gt=timezone.now())
    old = held.filter(created_at__lt=timezone.now() - GIVE_UP)
    return old.update(next_at=None, result=f"given up: its receiver has not answered for {GIVE_UP.days} days")
