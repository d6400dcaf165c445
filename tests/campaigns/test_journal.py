"""What the journal of a dead sender proves, held against the rows. A journal is dead once its file is not locked."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from django.db import OperationalError

from campaigns.engine import ground_truth
from campaigns.engine import sending as sender
from campaigns.engine.claiming.claims import Claimed, PermittedCall
from campaigns.engine.claiming.letters import Lease
from campaigns.engine.doubts import resolve
from campaigns.engine.finishing import finalizer, journals
from campaigns.engine.journal import CallJournal, MarkedAnswer, find_trouble, layout, reading
from campaigns.engine.journal.file import read_identity
from campaigns.models import Claim, Job, Message, Store
from tests.calling import by_sender, claim, costs
from tests.campaigns.test_claims_and_answers import locked
from tests.faults.checker import judge, sums
from tests.faults.sending import login, send_the_rest, take_again, taken
from tests.faults.test_04_zombies import claims_some
from tests.sandbox import Sandbox
from vendors.models import Usage

pytestmark = pytest.mark.django_db(transaction=True)
ACCEPTED = MarkedAnswer("a", "v-1", None, None, None)


@pytest.fixture
def home(tmp_path: Path, settings: Any) -> Path:
    settings.MAILHUB_HOME = tmp_path
    return tmp_path / layout.FOLDER


@pytest.fixture
def job(home: Path) -> Job:
    return taken(6, login("http://127.0.0.1:9"))


class Dying:
    """A sender with a journal, which is killed."""

    def __init__(self, folder: Path) -> None:
        self.journal = CallJournal(folder, read_identity())

    def claims(self, job: Job, most: int) -> list[PermittedCall]:
        self.lease, claimed = claims_some(job, most)
        self.marks = self.journal.marks_of(self.lease, self.journal.adoptions)
        return self.marked(claimed)

    def marked(self, claimed: Claimed) -> list[PermittedCall]:
        assert claimed.claim
        calls = [PermittedCall(one, claimed.claim, ("p",) * costs(one.id), 0.0) for one in claimed.messages]
        self.marks.mark_claimed(calls)
        return calls

    def dies(self) -> Path:
        self.journal.map.close()
        self.journal.leave_in_child()
        _with_header(process="0 0 0")(self.journal.path)
        return self.journal.path


@pytest.fixture
def dying(home: Path, job: Job) -> Iterator[Dying]:
    made = Dying(home)
    yield made
    if not made.journal.map.closed:
        made.dies()


def state_of(job: Job) -> tuple[str, int]:
    job.refresh_from_db()
    return job.status, job.fence


def test_only_open_calls_are_in_doubt_and_the_job_goes_on_at_once(job: Job, dying: Dying) -> None:
    waits, called, accepted, refused, put_off, stored = dying.claims(job, 6)
    dying.marks.called([called, accepted, refused, put_off, stored])
    dying.marks.keep_answer(accepted, ACCEPTED)
    dying.marks.keep_answer(refused, MarkedAnswer("r", "bounce", "5.1.1", "recipient", None))
    dying.marks.keep_answer(put_off, MarkedAnswer("n", None, None, "vendor", 90.0))
    dying.marks.free_stored([stored])
    fence, path = dying.lease.fence, dying.dies()
    assert journals.read_journals() == [job.pk]
    assert state_of(job) == ("RECOVERING", fence + 1) and not path.exists()
    rows = {one.id: one for one in Message.objects.all()}
    assert rows[called.message.id].in_doubt_at and rows[stored.message.id].in_doubt_at, "its answer is in no row"
    assert rows[accepted.message.id].message_id == "v-1"
    assert (rows[refused.message.id].error_code, rows[refused.message.id].error_sub_type) == ("bounce", "5.1.1")
    assert rows[put_off.message.id].put_off_at and rows[waits.message.id].dequeued_at is None
    assert sums() == {"in doubt": 2, "accepted": 1, "refused": 1, "waiting": 2}
    assert (job.accepted, job.refused, job.in_doubt) == (1, 1, 2)
    assert rows[accepted.message.id].units == (costs(accepted.message.id) if costs(accepted.message.id) > 1 else None)


def test_a_job_that_was_recovered_by_its_lease_learns_the_same(job: Job, dying: Dying) -> None:
    waits, called, accepted = dying.claims(job, 3)
    dying.marks.called([called, accepted])
    dying.marks.keep_answer(accepted, ACCEPTED)
    assert finalizer.recover_job(job.pk, timedelta()) and sums() == {"in doubt": 3, "waiting": 3}
    before = state_of(job)
    path = dying.dies()
    assert journals.read_journals() == [] and not path.exists()
    assert sums() == {"in doubt": 1, "accepted": 1, "waiting": 4} and state_of(job) == before
    assert Message.objects.get(in_doubt_at__isnull=False).pk == called.message.id
    assert job.in_doubt == 1 and waits.message.id not in Claim.objects.get().messages


def test_a_claim_of_which_the_sender_had_not_heard_was_not_called(job: Job, dying: Dying) -> None:
    [called] = dying.claims(job, 1)
    dying.marks.called([called])
    unheard = by_sender(lambda rows: claim(rows, job, dying.lease, 2, cursor=called.message.id + 1))
    assert len(unheard.messages) == 2
    dying.dies()
    assert journals.read_journals() == [job.pk]
    assert sums() == {"in doubt": 1, "waiting": 5}


def test_an_earlier_claim_without_a_mark_proves_nothing(job: Job, dying: Dying) -> None:
    """Its place may have been given up after its answers were stored, which a standby may not know."""
    lease, earlier = claims_some(job, 2)
    dying.lease, dying.marks = lease, dying.journal.marks_of(lease, dying.journal.adoptions)
    dying.marked(by_sender(lambda rows: claim(rows, job, lease, 1, cursor=earlier.messages[-1].id + 1)))
    dying.dies()
    assert journals.read_journals() == [job.pk]
    assert sums() == {"in doubt": 2, "waiting": 4}


def test_a_job_without_an_open_call_goes_on_at_once_too(job: Job, dying: Dying) -> None:
    lease, _ = claims_some(job, 1)
    Claim.objects.all().delete()
    dying.journal.marks_of(lease, dying.journal.adoptions)
    dying.dies()
    assert journals.read_journals() == [job.pk] and state_of(job)[0] == "RECOVERING" and sums() == {"waiting": 6}


def test_claims_without_a_free_place_are_in_doubt(job: Job, dying: Dying) -> None:
    """Nothing is inferred from a claim that has no mark, so nobody has to wait for a place."""
    dying.journal.free_chunks.clear()
    dying.claims(job, 2)
    dying.dies()
    assert journals.read_journals() == [job.pk] and sums() == {"in doubt": 2, "waiting": 4}


def test_a_stream_whose_store_was_taken_over_since_its_start_proves_nothing_of_claims(job: Job, dying: Dying) -> None:
    """Another sender may have started the job anew under the same fence: its claims are alive."""
    lease, claimed = claims_some(job, 2)
    dying.lease, dying.marks = lease, dying.journal.marks_of(lease, dying.journal.adoptions)
    Store.objects.update(adoptions=dying.journal.adoptions + 1)
    dying.marks.note_store(dying.journal.adoptions + 1)
    dying.dies()
    assert claimed.claim and journals.read_journals() == []
    assert state_of(job)[0] == "SENDING" and Claim.objects.filter(pk=claimed.claim.id).exists()


def test_a_journal_that_stays_for_a_locked_job_is_taken_over_once_for_the_others(
    job: Job, dying: Dying, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = taken(2, job.credential)
    dying.claims(job, 1)
    waiting = dying.journal.marks_of(Lease(other.pk, other.fence), dying.journal.adoptions)
    dying.dies()
    take_job = journals._take_job
    tried: list[int] = []

    def take_unlocked(job_id: int, *rest: Any) -> None:
        tried.append(job_id)
        if job_id == other.pk:
            raise OperationalError("locked")
        take_job(job_id, *rest)

    monkeypatch.setattr(journals, "_take_job", take_unlocked)
    assert waiting and journals.read_journals() == [job.pk] and journals.read_journals() == []
    assert tried == [job.pk, other.pk, other.pk], "only the one that is left is tried again"


def test_a_folder_that_cannot_be_read_holds_up_no_sweep(job: Job, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Path) -> list[str]:
        raise PermissionError("not yours")

    monkeypatch.setattr(reading.os, "listdir", refused)
    assert journals.read_journals() == []


def test_the_journal_of_a_living_process_is_not_read_nor_one_that_another_process_reads(
    job: Job, dying: Dying, home: Path
) -> None:
    dying.claims(job, 3)
    assert journals.read_journals() == [] and state_of(job)[0] == "SENDING"
    path = dying.dies()
    [dead] = reading.dead_journals(read_identity)  # its lock is gone with the loop
    for _ in reading.dead_journals(read_identity):
        assert journals.read_journals() == [] and state_of(job)[0] == "SENDING"
    dead.delete_file()
    assert not path.exists()
    assert journals.read_journals() == []


def test_a_process_that_has_lost_its_lock_by_mistake_is_not_dead(
    job: Job, dying: Dying, caplog: pytest.LogCaptureFixture
) -> None:
    dying.claims(job, 1)
    dying.journal.leave_in_child()
    for _ in range(2):
        assert journals.read_journals() == [] and state_of(job)[0] == "SENDING"
    assert len([line for line in caplog.messages if "has lost its lock" in line]) == 1
    dying.dies()
    assert journals.read_journals() == [job.pk] and sums() == {"waiting": 6}


def test_a_child_of_the_process_does_not_keep_its_journal(job: Job, dying: Dying) -> None:
    dying.claims(job, 1)
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.close(writes)
        os.read(reads, 1)  # until the test is over
        os._exit(0)
    try:
        os.close(reads)
        dying.dies()
        assert journals.read_journals() == [job.pk]
    finally:
        os.close(writes)
        os.waitpid(child, 0)


def _truncated(path: Path) -> None:
    os.truncate(path, layout.FILE_BYTES - 1)


def _emptied(path: Path) -> None:
    os.truncate(path, 0)


def _filled_with_garbage(path: Path) -> None:
    path.write_bytes(os.urandom(layout.FILE_BYTES))


def _copied(path: Path) -> None:
    content = path.read_bytes()
    path.rename(path.with_suffix(".original"))
    path.write_bytes(content)


def _with_a_damaged_place(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(layout.CHUNKS_AT + layout.CHUNK_IDS)
        file.write(b"\xff")


def _with_header(**values: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        content = path.read_bytes()
        _, length, _ = layout.HEAD.unpack_from(content)
        header = orjson.loads(content[layout.HEAD.size : layout.HEAD.size + length])
        with path.open("r+b") as file:
            file.write(layout.pack_header({**header, **values}))

    return change


UNFIT = {
    "truncated": _truncated,
    "emptied": _emptied,
    "garbage": _filled_with_garbage,
    "copied": _copied,
    "a damaged place": _with_a_damaged_place,
    "of another boot": _with_header(boot="another"),
    "of other sizes": _with_header(sizes=[1, 2, 3]),
}
LEFT = {
    "of another version": _with_header(version=layout.VERSION + 1),
    "of another cluster": _with_header(system="7/5"),
    "of another database": _with_header(relation=1),
}


@pytest.mark.parametrize("what", [*UNFIT, *LEFT, "deleted"])
def test_a_journal_that_does_not_fit_proves_nothing(
    what: str, job: Job, dying: Dying, caplog: pytest.LogCaptureFixture
) -> None:
    _, accepted = dying.claims(job, 2)
    dying.marks.called([accepted])
    dying.marks.keep_answer(accepted, ACCEPTED)
    path = dying.dies()
    if what == "deleted":
        path.unlink()
    else:
        (UNFIT | LEFT)[what](path)
    for _ in range(2):
        assert journals.read_journals() == []
    assert state_of(job)[0] == "SENDING" and sums() == {"in flight": 2, "waiting": 4}
    assert path.exists() is (what in LEFT)
    lines = [line for line in caplog.messages if path.name in line]
    assert len(lines) == (what != "deleted"), "said once"
    assert finalizer.recover_job(job.pk, timedelta()) and sums() == {"in doubt": 2, "waiting": 4}


def test_after_a_takeover_of_the_store_only_acceptances_of_known_claims_count(job: Job, dying: Dying) -> None:
    waits, called, accepted, refused = dying.claims(job, 4)
    dying.marks.called([called, accepted, refused])
    dying.marks.keep_answer(accepted, ACCEPTED)
    dying.marks.keep_answer(refused, MarkedAnswer("r", "bounce", None, "recipient", None))
    Store.objects.update(adoptions=Store.objects.get().adoptions + 1)
    dying.dies()
    assert journals.read_journals() == [] and state_of(job)[0] == "SENDING"
    assert sums() == {"accepted": 1, "in flight": 3, "waiting": 2}
    assert waits.message.id != called.message.id


def test_after_a_takeover_an_acceptance_of_a_lost_claim_is_not_believed(job: Job, dying: Dying) -> None:
    """Its ids may mean other messages now."""
    [accepted] = dying.claims(job, 1)
    dying.marks.called([accepted])
    dying.marks.keep_answer(accepted, ACCEPTED)
    Store.objects.update(adoptions=Store.objects.get().adoptions + 1)
    Claim.objects.all().delete()
    path = dying.dies()
    assert journals.read_journals() == [] and sums() == {"waiting": 6} and not path.exists()


def test_while_calls_are_halted_the_journal_is_kept(job: Job, dying: Dying) -> None:
    dying.claims(job, 1)
    timeline = Store.objects.get().timeline
    Store.objects.update(timeline="held")
    path = dying.dies()
    assert journals.read_journals() == [] and path.exists() and state_of(job)[0] == "SENDING"
    Store.objects.update(timeline=timeline)
    assert journals.read_journals() == [job.pk] and sums() == {"waiting": 6}


def test_a_locked_job_is_read_later_and_the_others_now(job: Job, dying: Dying) -> None:
    other = taken(2, login("http://127.0.0.1:9"))
    dying.claims(job, 1)
    dying.claims(other, 1)
    path = dying.dies()
    with locked(Job.objects.filter(pk=job.pk)):
        assert journals.read_journals() == [other.pk] and path.exists()
    assert journals.read_journals() == [job.pk] and not path.exists()
    assert sums() == {"waiting": 8}


def _repeated(message: Message) -> None:
    Message.objects.filter(pk=message.pk).update(sent_at=message.sent_at - timedelta(microseconds=1))


def _settled_by_a_person(message: Message) -> None:
    resolve.resolve_doubts([message.pk], "sent", "she has seen it", "ann")


def _reported(message: Message) -> None:
    by_sender(lambda rows: ground_truth.accept_messages(rows, [(message.pk, "v-9", 0)]))


def _proved_absent_and_suppressed(message: Message) -> None:
    Message.objects.filter(pk=message.pk).update(disproved=message.sent_at)
    by_sender(lambda rows: ground_truth.suppress_doubted(rows, message.pk, "by hand"))


@pytest.mark.parametrize("wins", [_repeated, _settled_by_a_person, _reported, _proved_absent_and_suppressed])
def test_what_was_learned_meanwhile_wins_over_a_mark_that_says_not_called(
    wins: Callable[[Message], None], job: Job, dying: Dying
) -> None:
    [waits] = dying.claims(job, 1)
    assert finalizer.recover_job(job.pk, timedelta())
    wins(Message.objects.get(pk=waits.message.id))
    before = Message.objects.values().get(pk=waits.message.id)
    dying.dies()
    journals.read_journals()
    assert Message.objects.values().get(pk=waits.message.id) == before


def test_the_places_of_messages_not_called_are_free_again_for_the_ledger(job: Job, dying: Dying) -> None:
    dying.claims(job, 2)
    dying.dies()
    assert journals.read_journals() == [job.pk]
    assert Usage.objects.get().ended_at is not None


def test_nothing_personal_is_in_a_journal(job: Job, dying: Dying) -> None:
    calls = dying.claims(job, 4)
    dying.marks.called(calls)
    whom = "ann.smith@example.com"
    for call, answer in zip(
        calls,
        [
            MarkedAnswer("r", f"no such user {whom}", f"5.1.1 <{whom}>", "recipient", None),
            MarkedAnswer("r", "+491701234567", "491701234567", "recipient", None),
            MarkedAnswer("d", None, f"timed out at {whom}", None, 5.0),
            MarkedAnswer("n", None, f"later, {whom}", "vendor", 90.0),
        ],
        strict=True,
    ):
        dying.marks.keep_answer(call, answer)
    path = dying.dies()
    content = path.read_bytes()
    recipients = [one.recipient for one in Message.objects.all()]
    assert not [text for text in (whom, "491701234567", *recipients) if text.encode() in content]
    assert path.stat().st_mode & 0o777 == 0o600
    journals.read_journals()
    assert sums() == {"refused": 2, "in doubt": 1, "waiting": 3}


def test_a_large_claim_has_several_places_and_they_are_used_again(home: Path) -> None:
    number = 2 * layout.CHUNK + 5
    job = taken(number, login("http://127.0.0.1:9"))
    one = Dying(home)
    for _ in range(2):
        calls = one.claims(job, number)
        one.marks.called(calls)
        for call in calls:
            one.marks.keep_answer(call, MarkedAnswer("a", f"v-{call.message.id}", None, None, None))
        assert len(one.journal.free_chunks) == layout.CHUNKS - 3
        one.marks.free_stored(calls)
        assert len(one.journal.free_chunks) == layout.CHUNKS and len(one.journal.free_slots) == layout.SLOTS
        one.marks.give_up_places()
        Claim.objects.all().delete()
        Job.objects.update(status="RECOVERING")
        take_again(job)
    calls = one.claims(job, number)
    one.marks.called(calls[1:])
    one.dies()
    assert journals.read_journals() == [job.pk] and sums() == {"waiting": 1, "in doubt": number - 1}


def test_calls_without_a_free_place_are_in_doubt_and_so_are_answers_too_long_to_keep(job: Job, dying: Dying) -> None:
    [call] = dying.claims(job, 1)
    dying.marks.called([call])
    dying.marks.keep_answer(call, MarkedAnswer("a", "v" * layout.SLOT_BYTES, None, None, None))
    dying.dies()
    assert journals.read_journals() == [job.pk] and sums() == {"in doubt": 1, "waiting": 5}


def test_a_sender_makes_a_journal_and_removes_it(home: Path, sandbox: Sandbox) -> None:
    job, seen = taken(40, login(sandbox.url)), list[list[str]]()

    def stopping() -> bool:
        seen.append([one.name for one in home.glob("*")])
        return False

    with closing(sender.Sender()) as one:
        one.send_claimed_job(job.pk, job.fence, stopping)
    assert any(len(names) == 1 and names[0].endswith(layout.SUFFIX) for names in seen)
    assert list(home.iterdir()) == [] and sums() == {"accepted": 40}


def test_with_the_setting_off_there_is_none(home: Path, sandbox: Sandbox, settings: Any) -> None:
    settings.JOURNAL = False
    sent_without_journal(sandbox)
    assert not home.exists() and find_trouble() == ""


@contextmanager
def no_large_files() -> Iterator[None]:
    """As on a full disk: files of this process may not grow."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (layout.FILE_BYTES - 1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_where_no_file_can_be_made_mail_goes_out_and_it_is_said_once(
    home: Path, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    with no_large_files(), closing(sender.Sender()) as one:
        for _ in range(2):
            job = taken(3, login(sandbox.url))
            one.send_claimed_job(job.pk, job.fence)
    assert len([line for line in caplog.messages if "no journal of calls" in line]) == 1
    assert list(home.iterdir()) == [] and sums() == {"accepted": 6}


def test_where_the_folder_cannot_be_written_mail_goes_out(
    home: Path, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    home.write_text("a file in the place of the folder")
    sent_without_journal(sandbox)
    assert [line for line in caplog.messages if "no journal of calls" in line]
    assert str(home) in find_trouble()


def sent_without_journal(sandbox: Sandbox) -> None:
    job = taken(3, login(sandbox.url))
    sender.send_claimed_job(job.pk, job.fence)
    send_the_rest(job)
    assert sums() == {"accepted": 3} and judge(sandbox.books()) == []
