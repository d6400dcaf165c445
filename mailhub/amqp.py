"""Celery's publisher: the waiter's, over connections with quick retries."""

from mailhub.broker import PromptConnection
from waiter.publisher import WaiterAMQP


class PromptAMQP(WaiterAMQP):
    Connection = PromptConnection
