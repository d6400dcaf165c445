"""A large report by granian: whole, and a reader that takes its time holds no thread of the server."""

from contextlib import closing

import pytest

from campaigns.models import Job, Message
from tests.front.program import Program, api_vendor, fresh, letter
from tests.front.server import serving

__all__ = ["fresh"]
pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True)]
ROWS = 1000


def test_a_large_report_is_whole_and_holds_no_thread_while_it_is_read() -> None:
    program = Program()
    sent = program.send(letter(api_vendor(), to=[f"r{n}@sandbox.example" for n in range(ROWS)]), "key-of-many")
    job = Job.objects.get(session__sponsor=program.sponsor)
    Message.objects.filter(campaign=job.campaign_id).update(params={"text": "x" * 3000})
    path = f"/api/v1/sessions/{sent.json()['id']}"
    with serving(threads=1) as server, closing(server.connection()) as connection:
        connection.request("GET", f"{path}/report", headers={"Authorization": f"Bearer {program.token}"})
        slow = connection.getresponse()  # its head; the rest of it is not taken yet
        assert (slow.status, int(slow.headers["Content-Length"]) > 3_000_000) == (200, True)
        assert server.ask("GET", path, program.token)[0] == 200, "the only thread answers others"
        whole = slow.read()
    assert len(whole) == int(slow.headers["Content-Length"])
    assert whole.decode().splitlines()[-1].startswith(f"r{ROWS - 1}@sandbox.example,xxx")
