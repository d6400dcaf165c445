"""The publisher that Celery uses: the waiter's, with connections that retry quickly."""

from mailhub.broker import PromptConnection
from waiter.publisher import WaiterAMQP


class PromptAMQP(WaiterAMQP):
    Connection = PromptConnection
