"""The operations page: the current state of all sending, in the admin and in `manage.py status`."""
