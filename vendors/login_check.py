"""Checks a credential by logging in: its validity and the vendor's offer. It sends nothing.

The code is the sender's own up to the first letter. Limits count letters, so a check takes no permit. It changes no
pause and not the vendor's health; it stores the SIZE named by a relay, and an entry in the history.
"""

import asyncio
import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import uvloop
from django.db import transaction

from vendors import adapters, history
from vendors.adapters.base import Adapter, LoginAnswer
from vendors.models import Credential
from vendors.outcomes import NotSent
from vendors.own_reasons import read_reason
from vendors.said import Said, gettext_noop

SECONDS = 20.0  # of a check, all in all
SHOWN = ("STARTTLS", "AUTH", "SIZE", "PIPELINING", "8BITMIME", "SMTPUTF8", "CHUNKING", "DSN")
NOT_CHECKABLE = gettext_noop(
    "it cannot be checked without sending: the adapter %(adapter)s has no call that only logs in. Send a campaign to "
    "yourself"
)
WORKS, FAILS = gettext_noop("the login works"), gettext_noop("the login does not work: %(why)s")
NO_LOGIN = gettext_noop("the relay answers; there is no login to check")
SECURED, OPEN = gettext_noop("encrypted by %(tls)s"), gettext_noop("not encrypted")
OFFERS = gettext_noop("it offers %(names)s")
TAKES = gettext_noop("it takes mails of up to %(count)s bytes")


@dataclass(frozen=True, slots=True)
class LoginCheck:
    """The result of a check. works: None if it cannot be checked. size: bytes of a mail; 0: the relay names none."""

    works: bool | None
    sentence: Said
    tls: str = ""
    offers: Mapping[str, str] | None = None
    size: int = 0

    def json_facts(self) -> dict[str, Any]:
        """Return it for --json."""
        return {
            "works": self.works,
            "sentence": self.sentence,
            "tls": self.tls,
            "offers": dict(self.offers or {}),
            "size": self.size,
        }


def check_login(login: Credential, by: history.Actor) -> LoginCheck:
    """Log in and leave, within SECONDS, and record the result in the history.

    Takes no lock and holds no transaction meanwhile. SIZE is stored only if the vendor is still set up as asked.
    """
    vendor = login.vendor
    secret = cast(Mapping[str, str], login.secret)
    try:
        adapter = adapters.load(vendor.adapter).for_credential(vendor.settings, secret)
    except ValueError as error:  # settings or secret do not fit
        found = LoginCheck(False, Said(FAILS, why=str(error)))
    else:
        found = _check_adapter(adapter, vendor.adapter, secret)
    with transaction.atomic():
        if found.offers:
            same = Credential.objects.filter(pk=login.pk, vendor__adapter=vendor.adapter)
            same.filter(vendor__settings=vendor.settings).update(relay_size=found.size or None)
        said = Said(gettext_noop("its login was checked: %(what)s"), what=found.sentence)
        history.record_changes(by, Credential, [(login.pk, said)])
    return found


def _check_adapter(adapter: Adapter, name: str, secret: Mapping[str, str]) -> LoginCheck:
    if not adapter.checks_login:
        return LoginCheck(None, Said(NOT_CHECKABLE, adapter=name))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        answer = loop.run(_ask_vendor(adapter))
    size = adapter.size_offered or 0
    parts = [*_verdict_on(answer, secret), *_describe_relay(answer, size)]
    return LoginCheck(answer.failure is None, Said.join_parts("; ", parts), answer.tls, answer.offers, size)


async def _ask_vendor(adapter: Adapter) -> LoginAnswer:
    await adapter.open()
    try:
        async with asyncio.timeout(SECONDS):
            return await adapter.check_login()
    except TimeoutError:
        return LoginAnswer(NotSent(f"no reply within {SECONDS:g} s"))
    finally:
        await adapter.close()


def _verdict_on(answer: LoginAnswer, secret: Mapping[str, str]) -> Iterator[Said]:
    if answer.failure is not None:
        why = _mask_secret(str(getattr(answer.failure, "reason", answer.failure)), secret)
        yield Said(FAILS, why=read_reason(why))
    else:
        yield Said(WORKS if secret else NO_LOGIN)


def _describe_relay(answer: LoginAnswer, size: int) -> Iterator[Said]:
    if not answer.offers:
        return
    yield Said(SECURED, tls=answer.tls) if answer.tls else Said(OPEN)
    named = [f"{name} {answer.offers[name]}".strip() for name in SHOWN if name in answer.offers and name != "SIZE"]
    if named:
        yield Said(OFFERS, names=", ".join(named))
    if size:
        yield Said(TAKES, count=size)


def _mask_secret(text: str, secret: Mapping[str, str]) -> str:
    """Return a vendor's words without the secret, also where they repeat it in base64."""
    for value in filter(None, secret.values()):
        for word in (value, base64.b64encode(value.encode()).decode()):
            text = text.replace(word, "***")
    return text
