"""The Django project: settings, the Celery application, the HTTP API, the operators' pages and beat."""

from mailhub.celery import app as celery_app

__all__ = ["celery_app"]
