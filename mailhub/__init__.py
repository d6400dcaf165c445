"""The front door: settings, Celery, HTTP, beat and the waiter."""

from mailhub.celery import app as celery_app

__all__ = ["celery_app"]
