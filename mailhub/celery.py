"""The Celery application: a bell, never the record (docs/architecture.md)."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mailhub.settings")

app = Celery("mailhub", task_cls="mailhub.waiter:WaiterTask", amqp="mailhub.waiter:WaiterAMQP")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
