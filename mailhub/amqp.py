"""Celery's publisher: the waiter's, over connections that are retried soon."""

from mailhub.broker import PromptConnection
from waiter.publisher import WaiterAMQP


class PromptAMQP(WaiterAMQP):
    Connection = PromptConnection
