"""The front door: settings, Celery, HTTP and beat."""

from mailhub.celery import app as celery_app

__all__ = ["celery_app"]
