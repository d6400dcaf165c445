"""A row of a run of equal refusals is extended, confirmed, replaced and ended."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from django.utils import timezone

from campaigns.engine.connections import open_connection
from campaigns.engine.refusal_runs import run_rows
from campaigns.engine.refusal_runs.known_runs import RunPart
from campaigns.engine.refusal_runs.run_rows import RunKey
from campaigns.models import Job, Message, RefusalRun
from tests import factories
from tests.campaigns.refused_lists import (
    full_run,
    no_other_sender,
    vendor,
)
from tests.faults.sending import login
from vendors.models import Credential
from vendors.outcomes import Refused

__all__ = ["no_other_sender", "vendor"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def noted(account: Credential, job: Job, code: str, numbers: list[int], anew: bool = False) -> None:
    """Extends the run of the credential as a sender does."""
    part = RunPart(RunKey(account.pk), Refused(code, "state 4"), [job.first_message + n for n in numbers], anew)

    async def note() -> None:
        rows = await open_connection()
        try:
            await part.note(rows, code, "state 4")
            await run_rows.end_run(rows, RunKey(account.pk), timezone.now() if code == "E_7113" else EPOCH)
        finally:
            await rows.close()

    asyncio.run(note())


@pytest.mark.django_db(transaction=True)
def test_other_words_of_a_retry_end_a_run(vendor: Any) -> None:
    account = login(vendor.url)
    job = factories.campaign_with_job(60, of=account, status="SENDING")
    noted(account, job, "E_words", list(range(19)))
    Message.objects.filter(id=job.first_message + 30).update(resend_no=1)
    noted(account, job, "E_other", [30])
    noted(account, job, "E_words", [19])
    assert RefusalRun.objects.get().full_at is None


@pytest.mark.django_db(transaction=True)
def test_a_confirmed_run_stays_until_it_is_put_back(vendor: Any) -> None:
    """Whatever open calls are answered: other words, an acceptance; and what has its words belongs to it."""
    account = login(vendor.url)
    job = factories.campaign_with_job(30, of=account, status="SENDING")
    run = full_run(account, job, 20)
    noted(account, job, "E_7114", [20, 21])
    assert RefusalRun.objects.get().messages == run.messages, "other words"
    noted(account, job, "E_7113", [22, 23], anew=True)
    run.refresh_from_db()
    assert sorted(run.messages) == [job.first_message + n for n in (*range(20), 22, 23)]
    assert run.full_at == run.since, "neither acceptance nor answer has ended it"


@pytest.mark.django_db(transaction=True)
def test_a_run_that_is_not_confirmed_is_replaced_by_other_words_and_ended_by_an_acceptance(vendor: Any) -> None:
    account = login(vendor.url)
    job = factories.campaign_with_job(30, of=account, status="SENDING")
    full_run(account, job, 20, full=0.0)
    noted(account, job, "E_7114", [20, 21])
    assert len(RefusalRun.objects.get().messages) == 2
    noted(account, job, "E_7113", [22])
    assert not RefusalRun.objects.exists()
