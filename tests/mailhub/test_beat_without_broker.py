"""A real beat whose broker goes away and comes back."""

import pytest

from tests.mailhub.test_beat_clock import all_have_run, quick_rows, run_counts
from tests.private_redis import PrivateRedis
from tests.workers import celery
from vendors.redis_addresses import celery_url

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(400)]


def test_a_broker_that_is_away_costs_a_line_a_task_and_is_used_again_once_it_is_back() -> None:
    """At night somebody reads this log. Celery's traceback of each task that is due had a hundred lines."""
    quick_rows()
    broker = PrivateRedis()
    try:
        with celery("beat", "--pidfile=", BROKER_URL=celery_url(broker.url)) as beat:
            all_have_run(beat, run_counts())
            broker.kill()
            lines = "beat cannot reach the broker: Couldn't apply scheduled task"
            beat.until(lambda: beat.log().count(lines) > 3, "beat says so")
            broker.start()
            with broker.client() as client:
                client.delete("hub")
                beat.until(lambda: client.llen("hub") > 3, "tasks come again")
            assert "Traceback" not in beat.log() and "Message Error" not in beat.log()
    finally:
        broker.end()
