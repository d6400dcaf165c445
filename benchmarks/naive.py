"""The usual way, as a yardstick: one Celery task per message, a commit before the call and one after it.

It is given every advantage: the vendor's connection is kept open in each process, nothing is limited or locked.
"""

import http.client
import json
import threading
from urllib.parse import urlsplit

from celery import shared_task
from django.utils import timezone

_open = threading.local()


@shared_task(ignore_result=True)
def deliver(message_id: int, url: str) -> None:
    from campaigns.models import Message

    message = Message.objects.get(pk=message_id)
    Message.objects.filter(pk=message_id).update(dequeued_at=timezone.now(), sent_at=timezone.now())
    payload = {"reference": message.reference, "recipient": message.recipient, "subject": "Hello", "body": "Good day"}
    status, answer = _post(url, json.dumps(payload), message.reference)
    assert status == 200, answer
    Message.objects.filter(pk=message_id).update(delivered_at=timezone.now(), message_id=json.loads(answer)["id"])


def _post(url: str, body: str, reference: str) -> tuple[int, bytes]:
    if not hasattr(_open, "connection"):
        _open.connection = http.client.HTTPConnection(urlsplit(url).netloc)
    _open.connection.request("POST", urlsplit(url).path, body, {"Idempotency-Key": reference})
    answer = _open.connection.getresponse()
    return answer.status, answer.read()
