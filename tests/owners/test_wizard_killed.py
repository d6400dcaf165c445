"""A worker is killed while it checks a list, and while it stores the campaign: the draft goes on, to one campaign."""

import signal
from datetime import timedelta
from pathlib import Path

import pytest

from campaigns.lists.drafts import checking, keeping, sending
from campaigns.models import Campaign, Draft, DraftBlock, Message
from campaigns.tasks import notify_of_draft
from mailhub import tasks
from tests.owners.test_wizard import ann, login, make, put
from tests.waiting import wait_until
from tests.workers import worker

__all__ = ["ann", "login"]
pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True)]


def test_a_worker_that_is_killed_leaves_a_draft_that_goes_on_to_one_campaign(client, login, monkeypatch):
    monkeypatch.setattr(checking, "SMALL", 0)
    draft = make(client, login)
    put(client, draft)
    with worker("hub", MAILHUB_FAILPOINTS="mid_check") as first:
        wait_until(lambda: first.process.poll() == -signal.SIGKILL, "the worker is killed in its check", log=first.log)
    assert not checking.check_draft(draft.pk), "who was killed is believed to be at work for two minutes"
    killed = DraftBlock.objects.get(kind=DraftBlock.ROWS).version
    Draft.objects.update(lease_at=draft.created_at - checking.LEASE)
    tasks.sweep_drafts()  # as beat does
    with worker("hub", MAILHUB_FAILPOINTS="mid_store:1:STOP") as second:
        second.until(lambda: keeping.load_draft(draft.pk).found, "the list is checked")
        draft = keeping.load_draft(draft.pk)
        assert draft.found["good"] == 2
        assert DraftBlock.objects.get(kind=DraftBlock.ROWS).version == draft.found["version"] > killed
        keeping.leave_out(draft, draft.seen, 3)
        draft = keeping.load_draft(draft.pk)
        draft = sending.start_sending(draft, draft.seen, {"when": "now"}, draft.created_by)
        notify_of_draft("send_draft", draft.pk)
        stat = Path(f"/proc/{second.process.pid}/stat")
        second.until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it is frozen in its COPY")
        with monkeypatch.context() as later:
            later.setattr(checking, "LEASE", timedelta(0))
            assert checking.claim_draft(draft.pk, Draft.SENDING) is None, "it holds the row, and nobody waits for it"
        assert not Campaign.objects.exists()
    with monkeypatch.context() as later:
        later.setattr(checking, "LEASE", timedelta(0))
        wait_until(lambda: sending.finish_sending(draft.pk) or Campaign.objects.exists(), "the campaign is made")
        assert sending.finish_sending(draft.pk) is None
    assert Campaign.objects.count() == 1 and Message.objects.count() == 2
