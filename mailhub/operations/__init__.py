"""The operations page: what goes on now, on one page of the admin and in `manage.py status`."""
