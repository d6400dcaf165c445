"""What happens to a call: decided by a magic recipient, or by chance.

Magic recipients, all @sandbox.example, also with digits or a +label (bounce17@, bounce+may@):
delivered  as anybody else                      lost        accepted, then the connection is reset
bounce     400 {"code": "bounce"}               garbage     accepted, answered with a web page
reject     422                                  error       500, not accepted
tempfail   429 once, then accepted              errorafter  500, but accepted: a look-up finds it
slow       accepted, answered after slow_s      returned    accepted, later reported as bounced
moved      accepted, answered 303, a redirect   complains   delivered, then a complaint

A vendor that takes every address, as Mailgun does, accepts bounce and reject, too, and reports them as bounced.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sandbox.vendor.settings import Settings

DOMAIN = "@sandbox.example"


@dataclass(frozen=True, slots=True)
class Plan:
    """The vendor's reaction to a call. `accepts`: it is booked as accepted; the other fields: the answer."""

    accepts: bool = True
    status: int = 200
    code: str = ""
    sub_type: str = ""
    answer: Literal["json", "html", "reset", "silence"] = "json"
    delay: float = 0.0


PLAIN = Plan()
SLOW = Plan()  # its delay is a setting
BOUNCE = Plan(accepts=False, status=400, code="bounce", sub_type="mailbox_unknown")
REJECT = Plan(accepts=False, status=422, code="rejected", sub_type="content")
RESET = Plan(answer="reset")
SILENCE = Plan(answer="silence")
GARBAGE = Plan(answer="html")
ERROR = Plan(accepts=False, status=500, code="internal_error")
ERROR_AFTER = Plan(status=500, code="internal_error")
MOVED = Plan(status=303, code="see_other")
TEMPFAIL = Plan(accepts=False, status=429, code="try_again")

MAGIC = {
    "bounce": BOUNCE,
    "tempfail": TEMPFAIL,
    "slow": SLOW,
    "reject": REJECT,
    "lost": RESET,
    "garbage": GARBAGE,
    "error": ERROR,
    "errorafter": ERROR_AFTER,
    "moved": MOVED,
}
RETURNED, COMPLAINS = "returned", "complains"
MAGIC_NAMES = frozenset({*MAGIC, RETURNED, COMPLAINS})
CHANCES = {
    "reset_rate": RESET,
    "lost_rate": SILENCE,
    "error_rate": ERROR,
    "error_after_rate": ERROR_AFTER,
    "reject_rate": REJECT,
    "slow_rate": SLOW,
}


def magic_word(recipient: str) -> str:
    """Return "bounce" for itself, bounce@, bounce+17@ and bounce17@sandbox.example; "" for anybody else."""
    if recipient in MAGIC_NAMES:
        return recipient
    local, at, domain = recipient.lower().partition("@")
    return local.partition("+")[0].rstrip("0123456789") if at + domain == DOMAIN else ""


class Planner:
    """Plans under one set of settings.

    Magic recipients always get the same plan; all others, including delivered@, get one by chance.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._slow = replace(SLOW, delay=settings.slow_s)
        self._shares = [(getattr(settings, name), plan) for name, plan in CHANCES.items() if getattr(settings, name)]

    def plan(self, recipients: Sequence[str]) -> Plan:
        """Return the plan for a call to these recipients; a magic word counts as one."""
        magic = next((plan for one in recipients if (plan := MAGIC.get(magic_word(one)))), None)
        plan = magic or (self._by_chance() if self._shares else PLAIN)
        return self._slow if plan is SLOW else plan

    def _by_chance(self) -> Plan:
        drawn = random.random()
        for share, plan in self._shares:
            if drawn < share:
                return plan
            drawn -= share
        return PLAIN

    def latency(self) -> float:
        """Return the seconds until this answer leaves."""
        settings = self._settings
        milliseconds = settings.latency_ms
        if milliseconds and settings.latency == "exponential":
            milliseconds = random.expovariate(1 / milliseconds)
        if settings.jitter_ms:
            milliseconds += random.uniform(-settings.jitter_ms, settings.jitter_ms)
        return max(0.0, milliseconds / 1000)
