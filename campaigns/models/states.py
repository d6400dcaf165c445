"""The statuses of jobs; campaigns/engine/lifecycle.py has the moves between them."""

from django.db import models


class Status(models.TextChoices):
    """The statuses of jobs: first of leaves, then of parents."""

    RENDERED = "RENDERED", "Rendered"
    READY = "READY", "Ready"
    DISPATCHED = "DISPATCHED", "Dispatched"
    ENQUEUED = "ENQUEUED", "Enqueued"
    SENDING = "SENDING", "Sending"
    RECOVERING = "RECOVERING", "Recovering"
    SENT = "SENT", "Sent"
    STOPPED = "STOPPED", "Stopped"
    LOGGED = "LOGGED", "Logged"
    P_QUEUED = "P_QUEUED", "Parent queued"
    P_ASSIGNING = "P_ASSIGNING", "Parent assigning"
    P_ASSIGNED = "P_ASSIGNED", "Parent assigned"
    P_FINISHED = "P_FINISHED", "Parent finished"
    P_STOPPED = "P_STOPPED", "Parent stopped"


S = Status
PARENTS = (S.P_QUEUED, S.P_ASSIGNING, S.P_ASSIGNED, S.P_FINISHED, S.P_STOPPED)
RUNNING = (S.ENQUEUED, S.SENDING)  # claimed by a mailcaster or being sent, under a lease
WAITING = (S.DISPATCHED, S.RECOVERING, S.P_ASSIGNING, S.P_QUEUED)  # for a mailcaster
FINALISING = (S.SENT, S.STOPPED)  # the last answers are being stored
DONE = (S.LOGGED, S.P_FINISHED)
OWN_ENDS = ("expired", "suppressed")  # error codes of messages ended without a call; no vendor's code equals one
