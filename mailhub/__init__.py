"""The Django project: settings, the Celery application, the HTTP API, the operators' pages and beat.

Importing it loads nothing else, so that a command can print its first line at once; mailhub.apps loads Celery.
"""
