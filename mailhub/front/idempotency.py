"""A repeat with the same Idempotency-Key gets the first answer again, where the work itself does not keep it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass

from django.db import IntegrityError, transaction
from django.http import HttpResponse

from mailhub.front.keys import Caller
from mailhub.front.problems import Problem
from mailhub.front.request_bodies import JSON
from mailhub.models import KeptAnswer


@dataclass(frozen=True, slots=True)
class Created:
    """Where what was made is, and its JSON."""

    location: str
    body: str

    def response(self, replayed: bool = False) -> HttpResponse:
        headers = {"Location": self.location} | ({"Idempotent-Replayed": "true"} if replayed else {})
        return HttpResponse(self.body, JSON, 201, headers=headers)


def once(caller: Caller, operation: str, key: str, fingerprint: bytes, work: Callable[[], Created]) -> HttpResponse:
    """What the work made, now or the first time. Raises Problem: another body, or the work's own."""
    found = _find(caller, operation, key, fingerprint)
    if found:
        return found.response(replayed=True)
    try:
        with transaction.atomic():
            made = work()
            kept = KeptAnswer(sponsor_id=caller.sponsor_id, test=caller.test, operation=operation)
            kept.idempotency_key, kept.fingerprint, kept.answer = key, fingerprint, asdict(made)
            kept.save()
    except (IntegrityError, Problem):  # the same request may have come twice at once
        found = _find(caller, operation, key, fingerprint)
        if found is None:
            raise
        return found.response(replayed=True)
    return made.response()


def _find(caller: Caller, operation: str, key: str, fingerprint: bytes) -> Created | None:
    kept = KeptAnswer.objects.filter(
        sponsor=caller.sponsor_id, test=caller.test, operation=operation, idempotency_key=key
    ).first()
    if kept is None:
        return None
    if bytes(kept.fingerprint) != fingerprint:
        raise Problem("idempotency-key-reused", "Its first request had another body.")
    return Created(**kept.answer)
