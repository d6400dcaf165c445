"""A cluster of RabbitMQ over TLS loses the node that all use while mail goes out: nothing is lost, nothing twice."""

import ssl
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from mailhub import broker
from tests import factories
from tests.celery_tasks import notes
from tests.faults.checker import judge, sums
from tests.faults.sending import calls, login
from tests.mailhub.test_rabbitmq import Site, logged
from tests.private_rabbitmq import PROGRAM, PrivateRabbitCluster
from tests.sandbox import Sandbox
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow("programs"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(600),
    pytest.mark.skipif(not PROGRAM, reason="no rabbitmq-server is installed (Debian's package rabbitmq-server)"),
]
RECIPIENTS, RATE = 200, 40


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateRabbitCluster]:
    made = PrivateRabbitCluster()
    try:
        yield made
    finally:
        made.end()


def test_mail_and_tasks_outlive_the_node_that_all_are_connected_to(
    cluster: PrivateRabbitCluster, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "mailhub.settings")
    sandbox.settings(latency_ms=5000.0)  # the mail is under way until the node is dead
    account = login(sandbox.url, (RATE, 1.0))
    factories.caster(account.vendor)
    queue, page = factories.unique("kept"), factories.unique("page")
    with ExitStack() as stack:
        site = Site(cluster, stack)
        site.celery("beat", "--pidfile=")
        worker = site.worker()
        site.note(page, "waits in the cluster", queue)
        job = factories.campaign_with_job(RECIPIENTS, of=account, status="RENDERED")
        site.manage("dispatch_jobs", "--vendor", account.vendor.slug)
        calls(sandbox, 4)
        cluster.kill_node(0)
        sandbox.settings(latency_ms=0.0)
        site.worker(queue, processes=1)
        wait_until(lambda: notes(page) == ["waits in the cluster"], "the others have what the dead one knew")
        site.note(page, "came later", queue)
        wait_until(lambda: "came later" in notes(page), "tasks go on")
        logged(job, "P_FINISHED")
        kinds = dict(line.split() for line in cluster.control("list_queues", "name", "type", node=1).splitlines()[1:])
        assert kinds[account.vendor.queue] == kinds[queue] == "quorum", kinds
        assert worker.process.poll() is None, "the worker has found another node"
    assert judge(sandbox.books(), windows=[(RATE, 1.0, None)]) == [] and sums().total() == RECIPIENTS


def test_a_node_must_prove_its_name_and_its_authority(cluster: PrivateRabbitCluster) -> None:
    broker.use_transports()
    node = cluster.url.split(";")[1]  # the first one may be dead
    stranger = node.replace("@127.0.0.1:", "@127.1:")  # the same place by a name that the certificate does not have
    with broker.connect_to(node, 5.0) as line:
        line.connect()
    for url in (stranger, node.partition("?")[0]):
        with broker.connect_to(url, 5.0) as line, pytest.raises(ssl.SSLCertVerificationError):
            line.connect()
