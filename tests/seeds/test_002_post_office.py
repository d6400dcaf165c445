"""Document 002 as a story: the Post Office takes a letter, a worker sends it, the client grabs back the result.

First the nine steps of its detailed transaction, then its seven failure scenarios.
"""

import os
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from django.db import connection
from django.utils import timezone
from kombu import Connection

from campaigns.engine import sending
from campaigns.engine.casting import mailcaster
from campaigns.engine.finishing import finalizer
from campaigns.integrations.results import writer
from campaigns.integrations.results import writer as result_store
from campaigns.models import AnswerBatch, Job, Message, Session
from campaigns.models.states import RUNNING
from campaigns.tasks import cast
from tests import factories, forks
from tests.front import server
from tests.front.program import Program, forget, fresh, letter, problem
from tests.private_redis import PrivateRedis
from tests.programs import environment, sweeping, wait_until, worker
from vendors import health
from vendors.health import HealthPolicy
from vendors.redis_addresses import celery_url

__all__ = ["fresh"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
THREE = ["ann@sandbox.example", "bounce@sandbox.example", "cid@sandbox.example"]


@pytest.fixture
def service(sandbox):
    """The third party service: a vendor with one caster and one login."""
    vendor = factories.vendor(settings={"url": sandbox.url}, casters=["small-only"], min_requests=3, min_ratio=0.5)
    factories.credential(vendor, "default")
    return vendor


@pytest.fixture
def result_servers(settings):
    servers = [PrivateRedis(), PrivateRedis()]
    settings.RESULT_URLS = [one.url for one in servers]
    yield servers
    for one in servers:
        one.end()


def status_of(service):
    return health.health_store(os.environ["REDIS_URL"]).look(service.pk, HealthPolicy.of(service))


def picked(service):
    """A worker picks the next job of a service; the id of the job and the fence of the claim."""
    caster_id = service.mailcasters.exclude(jobs__status__in=RUNNING).order_by("name")[0].pk
    claimed = mailcaster.claim_next_job(caster_id, timezone.now())
    return claimed and (claimed.job_id, claimed.fence)


class TestDetailedTransaction:
    def test_step_1_the_front_looks_at_the_ratio_of_good_to_bad_responses(self, service):
        program, store = Program(), health.health_store(os.environ["REDIS_URL"])
        store.note(service.pk, HealthPolicy.of(service), 2, 2)
        assert program.send(letter(service)).status_code == 202, "equal to the threshold is not under it"
        store.note(service.pk, HealthPolicy.of(service), 0, 1)
        refused = program.send(letter(service))
        problem(refused, "vendor-unhealthy", 503)
        assert service.retry_after / 2 < int(refused.headers["Retry-After"]) <= service.retry_after
        assert Session.objects.count() == 1, "the client is prevented from sending more work"

    def test_steps_2_and_3_a_unique_session_then_the_queue_then_202(self, service):
        program = Program()
        answers = [program.send(letter(service)) for _ in range(3)]
        assert {answer.status_code for answer in answers} == {202}
        sessions = {answer.json()["id"] for answer in answers}
        assert len(sessions) == 3 == Session.objects.count()
        assert set(Job.objects.values_list("vendor", "status")) == {(service.pk, "DISPATCHED")}
        assert picked(service) == (Job.objects.earliest("id").pk, 1), "it is in the right queue"

    @pytest.mark.slow("servers")
    def test_steps_4_to_10_worker_consumer_result_server_session_and_the_answer(self, service, sandbox, result_servers):
        program = Program()
        links = program.send(letter(service, THREE)).json()["links"]
        job_id, fence = picked(service)
        sending.send_claimed_job(job_id, fence)  # 4: a worker does it and has the result back
        assert finalizer.finalise_job(job_id)
        (session_id,) = finalizer.sessions_to_write([job_id])  # 5: the consumer picks the jobs that are done
        writer.write_result(session_id)  # 6: it pushes the result, then writes the server's number to the session
        session = Session.objects.get()
        other = 1 - session.shard
        assert session.shard == result_store.shard_of(session_id)
        assert result_store.get_result(session.shard, session_id) and not result_store.get_result(other, session_id)
        assert not finalizer.sessions_to_write([job_id]) and not writer.left_behind(), (
            "the job is removed from the queue"
        )
        status = status_of(service)  # 7: a bounced letter is a good response: the service works
        assert (status.good, status.bad) == (3, 0)
        result_servers[other].restart(keep=False)
        stored = result_store.get_result(session.shard, session_id)["messages"]
        assert program.get(links["messages"]).json()["data"][0]["id"] == stored[0]["id"]  # 9 and 10
        session = program.get(links["self"]).json()
        assert (session["status"], session["counts"]["sent"], session["counts"]["failed"]) == ("partly_sent", 2, 1)
        assert sorted(sandbox.books().recipients) == ["ann@sandbox.example", "cid@sandbox.example"]

    @pytest.mark.slow("processes")
    def test_the_whole_way_with_real_workers(self, service, sandbox):
        program = Program()
        with worker(queues=f"hub,{service.queue}"), sweeping():
            links = program.send(letter(service, THREE)).json()["links"]
            wait_until(lambda: Session.objects.filter(shard__isnull=False).exists(), "the result is on its server")
        assert program.get(links["self"]).json()["counts"]["sent"] == 2
        assert len(sandbox.books().recipients) == 2 and not sandbox.books().duplicates()


def test_sessions_are_spread_over_the_result_servers(settings):
    settings.RESULT_URLS = ["a", "b", "c"]
    from campaigns.lists.api.send_orders import new_session

    shards = [result_store.shard_of(new_session()) for _ in range(300)]
    assert {shards.count(shard) > 50 for shard in (0, 1, 2)} == {True}


class TestFailureScenarios:
    @pytest.mark.slow("servers")
    def test_1_to_3_without_status_database_session_database_or_queue_503_and_nothing_is_stored(self, service):
        program = Program()
        status, queue = PrivateRedis(), PrivateRedis()
        with tempfile.TemporaryDirectory(prefix="mailhub-way-") as folder, closing(CutConnection(Path(folder))) as cut:
            variables = {"REDIS_URL": status.url, "BROKER_URL": celery_url(queue.url), "DATABASE_URL": cut.url}
            try:
                with server.serving(**variables) as front:
                    stores = {"status": (status.kill, status.start), "session": (cut.cut, cut.mend)}
                    stores["queue"] = (queue.kill, queue.start)
                    for name, (kill, start) in stores.items():
                        sent = front.send(program.token, letter(service), f"{name} before")
                        assert sent[0] == 202, (name, sent)
                        kill()
                        code, headers, content = front.send(program.token, letter(service), f"{name} down")
                        assert (code, content["type"]) == (503, "urn:mailhub:problem:storage-unavailable"), name
                        assert int(headers["retry-after"]) >= 1
                        start()
                        wait_until(
                            lambda name=name: front.send(program.token, letter(service), f"{name} after")[0] == 202,
                            f"work is taken again with the {name} store",
                        )
            finally:
                status.end()
                queue.end()
        keys = sorted(Session.objects.values_list("idempotency_key", flat=True))
        assert keys == sorted(f"{name} {when}" for name in stores for when in ("after", "before"))
        assert Job.objects.count() == Message.objects.count() == 6, "nothing was stored half"

    @pytest.mark.slow("servers")
    def test_4_the_queue_crashes_and_loses_all_but_no_data_and_the_workers_resume_their_subscriptions(
        self, service, sandbox
    ):
        queue = PrivateRedis()
        try:
            with worker(queues=f"hub,{service.queue}", BROKER_URL=celery_url(queue.url)):
                queue.restart(keep=False)
                assert Program().send(letter(service)).status_code == 202  # its notification is lost with this queue
                with Connection(celery_url(queue.url)) as line:
                    options = {"queue": service.queue, "connection": line}
                    wait_until(
                        lambda: cast.apply_async((service.pk,), **options) and sandbox.books().recipients,
                        "a notification that is sent again arrives",
                    )
                wait_until(lambda: Job.objects.get().status == "LOGGED", "the job is logged")
        finally:
            queue.end()
        assert dict(sandbox.books().recipients) == {"ann@sandbox.example": 1}

    def test_5_a_job_is_left_in_the_queue_with_a_marker_so_that_nobody_else_picks_it(self, service, sandbox):
        factories.caster(service, "MC2", "small-only")
        Program().send(letter(service, THREE))
        assert picked(service) == (Job.objects.get().pk, 1)
        assert picked(service) is None, "another worker finds nothing"

    @pytest.mark.slow("processes")
    def test_6_a_worker_crashes_its_marker_decays_and_another_worker_sends_the_rest_and_only_the_rest(
        self, service, sandbox
    ):
        service.settings["concurrency"] = 1
        service.save()
        program = Program()
        links = program.send(letter(service, [f"p{n}@sandbox.example" for n in range(5)])).json()["links"]
        job = Job.objects.get()
        with worker(queues=f"hub,{service.queue}", MAILHUB_FAILPOINTS="after_record"), sweeping():
            cast.apply_async((service.pk,), queue=service.queue)
            wait_until(lambda: AnswerBatch.objects.filter(job=job).exists(), "the worker has sent something and dies")
        with worker(queues=f"hub,{service.queue}"), sweeping():
            wait_until(lambda: Session.objects.filter(finished_at__isnull=False).exists(), "another worker ends it")
        assert program.get(links["self"]).json()["counts"]["sent"] == 5
        assert len(sandbox.books().recipients) == 5 and not sandbox.books().duplicates()

    def test_7_a_result_database_that_cannot_be_reached_loses_the_result_and_the_rows_answer(
        self, service, settings, monkeypatch
    ):
        monkeypatch.setattr(writer, "PAUSES", (0.01, 0.01))
        program = Program()
        links = program.send(letter(service)).json()["links"]
        job_id, fence = picked(service)
        sending.send_claimed_job(job_id, fence)
        finalizer.finalise_job(job_id)
        settings.RESULT_URLS = ["redis://127.0.0.1:1/0"]
        writer.write_result(Session.objects.get().pk)
        session = Session.objects.get()
        assert session.finished_at and session.shard is None, "the result is dropped, the work leaves the queue"
        assert not finalizer.sessions_to_write([job_id]) and not writer.left_behind()
        assert program.get(links["messages"]).json()["data"][0]["status"] == "sent"

    def test_7_a_session_database_that_cannot_be_reached_drops_the_result_until_the_sweep(self, service):
        Program().send(letter(service))
        job_id, fence = picked(service)
        sending.send_claimed_job(job_id, fence)
        finalizer.finalise_job(job_id)
        session = Session.objects.get()
        script = "import django; django.setup(); from uuid import UUID;"
        script += "from campaigns.integrations.results import writer;"
        script += f"writer.PAUSES = (0.01,); print(writer.write_result(UUID('{session.pk}')))"
        away = environment(
            DATABASE_URL="postgres://mailhub@127.0.0.1:1/none", DJANGO_SETTINGS_MODULE="mailhub.settings"
        )
        done = forks.run(["-c", script], env=away, timeout=120)
        assert done.stdout.strip() == "[]", done.stderr
        assert Session.objects.get().finished_at is None
        assert writer.left_behind() == [session.pk], "a lost notification is sent again"
        writer.write_result(session.pk)
        assert Session.objects.get().finished_at

    def test_a_transaction_can_be_retried_by_the_user(self, service, sandbox):
        program = Program()
        sandbox.settings(reject_rate=1.0)
        links = program.send(letter(service)).json()["links"]
        job_id, fence = picked(service)
        sending.send_claimed_job(job_id, fence)
        finalizer.finalise_job(job_id)
        assert program.get(links["self"]).json()["status"] == "failed"
        sandbox.settings(reject_rate=0.0)
        forget()
        assert program.post(links["retry"]).json()["changed"]
        job_id, fence = picked(service)
        sending.send_claimed_job(job_id, fence)
        finalizer.finalise_job(job_id)
        message = program.get(links["messages"]).json()["data"][0]
        assert (message["status"], message["attempt"]) == ("sent", 2)


class CutConnection:
    """A way to the test's database of its own, which can be cut: a folder that stands for the one with the socket."""

    def __init__(self, folder: Path) -> None:
        self._link = folder / "way"
        self._target = connection.settings_dict["HOST"] or connection.settings_dict["OPTIONS"].get("host")
        self.mend()
        name = connection.settings_dict["NAME"]
        self.url = f"postgres://mailhub@/{name}?host={str(self._link).replace('/', '%2F')}"

    def mend(self) -> None:
        self._link.symlink_to(self._target)

    def cut(self) -> None:
        self._link.unlink()
        with connection.cursor() as cursor:
            others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            cursor.execute(f"{others} AND pid <> pg_backend_pid() AND backend_type = 'client backend'")

    def close(self) -> None:
        self._link.unlink(missing_ok=True)
