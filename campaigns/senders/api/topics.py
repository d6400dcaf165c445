"""The API's topics: subjects of a sponsor's mail, each with its own unsubscription."""

from typing import Any

from django.http import HttpRequest
from ninja import Router
from pydantic import BaseModel, Field

from campaigns.doors.front.keys import Caller, Key
from campaigns.doors.front.problems import Problem
from campaigns.doors.front.schemas import ProblemOut
from campaigns.models import Topic
from campaigns.senders import sender_changes
from vendors.history import Actor

router = Router(tags=["topics"])
PROBLEMS = dict.fromkeys((401, 403, 404, 429, 503), ProblemOut)
MOST = 1_000  # topics in one list


class TopicOut(BaseModel):
    name: str = Field(description="By which a request names it")
    title: str = Field(description="As recipients read it")
    archived: bool = Field(description="No new request can name it")


class TopicsOut(BaseModel):
    data: list[TopicOut]


class TopicArchivedOut(BaseModel):
    changed: bool
    archived: bool


@router.get(
    "/topics", auth=Key("send", "read", "ops"), response={200: TopicsOut, **PROBLEMS}, summary="Your topics, by name"
)
def list_topics(request: HttpRequest) -> dict[str, Any]:
    """Operators and users of the pages make them."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    rows = Topic.objects.filter(sponsor=caller.sponsor_id).order_by("name")[:MOST]
    return {"data": [{"name": one.name, "title": one.title, "archived": one.archived_at is not None} for one in rows]}


@router.post(
    "/topics/{topic}/archive",
    auth=Key("send"),
    response={200: TopicArchivedOut, **PROBLEMS},
    summary="Archive a topic",
)
def archive_topic(request: HttpRequest, topic: str) -> dict[str, Any]:
    """New requests cannot name it. Accepted ones are unchanged, and recipients can still unsubscribe from it."""
    return _archive_and_show(request, topic, True)


@router.post(
    "/topics/{topic}/restore",
    auth=Key("send"),
    response={200: TopicArchivedOut, **PROBLEMS},
    summary="Use an archived topic again",
)
def restore_topic(request: HttpRequest, topic: str) -> dict[str, Any]:
    """Repeats change nothing."""
    return _archive_and_show(request, topic, False)


def _archive_and_show(request: HttpRequest, name: str, archived: bool) -> dict[str, Any]:
    caller: Caller = request.auth  # type: ignore[attr-defined]
    if caller.test:
        raise Problem("forbidden", "A test key may name topics but not change them: live keys use them, too.")
    mine = Topic.objects.filter(sponsor=caller.sponsor_id, name=name) if name.isprintable() else Topic.objects.none()
    found = mine.first()
    if found is None:
        raise Problem("not-found", "You have no such topic.")
    return {"changed": sender_changes.archive_topic(found.pk, archived, Actor(caller.prefix)), "archived": archived}
