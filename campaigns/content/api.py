"""The API's templates: texts that a sponsor uses repeatedly, with versions that requests name."""

from datetime import datetime
from typing import Any
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse
from ninja import Router, Status
from ninja.params.functions import Query
from pydantic import BaseModel, Field

from campaigns.content.template_versions import versions
from campaigns.content.template_versions.versions import TemplateContent
from campaigns.doors.front import request_bodies
from campaigns.doors.front.keys import Caller, Key
from campaigns.doors.front.problems import Problem, invalid_problem, make_error
from campaigns.doors.front.rate_limits import RenderBudget, budget_problem
from campaigns.doors.front.schemas import Channel, ClassWord, HeaderIn, PageLinks, ProblemOut, Strict
from campaigns.models import Template, TemplateVersion
from campaigns.texts.templates import OverBudget, TemplateError
from vendors.history import Actor
from vendors.mail_classes import MailClass, class_named

router = Router(tags=["templates"])
HERE = "/api/v1/templates"
PROBLEMS = dict.fromkeys((401, 403, 404, 422, 429, 503), ProblemOut)
NOT_YOURS = "You have no such template, or not this version of it."


class TemplateIn(Strict):
    """The next version of a template; the first one makes it."""

    name: str = Field(min_length=1, max_length=100, description="By which requests name it; no @, / or \\ in it")
    channel: Channel
    based_on: int | None = Field(
        default=None, ge=0, description="The version that this started from, 0: none; if there is a newer one: 409"
    )
    subject: str = Field(default="", max_length=10_000)
    body: str = Field(min_length=1, max_length=1_000_000)
    html: bool = False
    text: str = Field(default="", max_length=1_000_000, description="Beside HTML; empty: made from it")
    headers: list[HeaderIn] = Field(default=[], max_length=20)
    remark: str = Field(default="", max_length=255, description="What is new, for people")
    mail_class: ClassWord | None = Field(
        default=None, description="Of requests that name none, from now on; left out: it stays"
    )


class TemplateOut(BaseModel):
    name: str
    channel: Channel
    archived: bool
    newest: int = Field(description="The number of its newest version")
    made_by: str = Field(description="Who made that version: a user, or a key's prefix")
    made_at: datetime


class TemplateVersionOut(BaseModel):
    name: str
    channel: Channel
    archived: bool
    version: int
    subject: str
    body: str
    html: bool
    text: str
    headers: list[HeaderIn]
    mail_class: ClassWord | None = Field(description="Of requests that name none; null: by their kind")
    fields: list[str] = Field(description="What a recipient must have")
    optional: list[str] = Field(description="What a recipient may have")
    remark: str
    made_by: str
    made_at: datetime


class TemplatesOut(BaseModel):
    data: list[TemplateOut]
    links: PageLinks


class ArchivedOut(BaseModel):
    changed: bool
    archived: bool


@router.get(
    "/templates", auth=Key("read", "send"), response={200: TemplatesOut, **PROBLEMS}, summary="Templates, page by page"
)
def list_templates(
    request: HttpRequest,
    archived: bool = Query(False, description="Those that are archived, instead of the others"),
    limit: int = Query(100, ge=1, le=1000),
    cursor: str = Query("", max_length=100, description="From the link to the next page"),
) -> dict[str, Any]:
    """By their names."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    rows = Template.objects.filter(sponsor=caller.sponsor_id, archived_at__isnull=not archived).order_by("name")
    if cursor:
        rows = rows.filter(name__gt=cursor) if cursor.isprintable() else rows.none()
    page = list(rows[: limit + 1])
    newest = versions.newest_of(page[:limit])
    here = f"{HERE}?limit={limit}" + ("&archived=true" if archived else "")
    more = f"{here}&cursor={quote(page[limit - 1].name, safe='')}" if len(page) > limit else None
    data = [_listed_template(row, newest[row.pk]) for row in page[:limit]]
    return {"data": data, "links": {"self": here, "next": more}}


@router.post(
    "/templates",
    auth=Key("send"),
    response={
        201: TemplateVersionOut, 200: TemplateVersionOut, 400: ProblemOut, 409: ProblemOut, 413: ProblemOut, **PROBLEMS
    },
    summary="Add a version of a template",
    openapi_extra={"requestBody": request_bodies.describe_body(TemplateIn)},
)  # fmt: skip
def add_template_version(request: HttpRequest, response: HttpResponse) -> Status[dict[str, Any]]:
    """Compiled before it is stored. 200: the newest version says the same, so nothing was added."""
    caller, budget = _live_key_caller(request), RenderBudget(request.auth.sponsor_id)  # type: ignore[attr-defined]
    asked, _ = request_bodies.read_body(request, TemplateIn)
    headers = [(one.name, one.value) for one in asked.headers]
    content = TemplateContent(asked.subject, asked.body, asked.html, asked.text, headers)
    budget.foresee(asked.subject, asked.body, asked.text, *(one.value for one in asked.headers))
    try:
        added = versions.add_version(
            caller.sponsor_id,
            asked.name,
            asked.channel,
            content,
            Actor(caller.prefix),
            asked.remark,
            asked.based_on,
            budget,
        )
    except OverBudget as why:
        raise budget_problem(why, "/body") from why
    except TemplateError as why:
        raise invalid_problem([make_error(_pointer_of_fault(str(why)), "template", str(why))]) from why
    except versions.TemplateRefused as why:
        raise invalid_problem([make_error("/name", "template", str(why))]) from why
    except versions.NewerVersion as why:
        raise Problem("state-conflict", f"{why}; read it, and add yours to it") from why
    if asked.mail_class is not None:
        versions.set_class(added.version.template, class_named(asked.mail_class), Actor(caller.prefix))
    response.headers["Location"] = f"{HERE}/{quote(asked.name, safe='')}?version={added.version.number}"
    return Status(201 if added.new else 200, _version_facts(added.version))


@router.get(
    "/templates/{template}",
    auth=Key("read", "send"),
    response={200: TemplateVersionOut, **PROBLEMS},
    summary="One version of a template",
)
def get_template(
    request: HttpRequest,
    template: str,
    version: int | None = Query(None, ge=1, lt=2**31, description="Default: the newest"),
) -> dict[str, Any]:
    """What it says, and which fields it shows."""
    rows = TemplateVersion.objects.filter(template=_template_of_caller(request, template)).select_related("template")
    found = (rows if version is None else rows.filter(number=version)).first()
    if found is None:
        raise Problem("not-found", NOT_YOURS)
    return _version_facts(found)


@router.post(
    "/templates/{template}/archive",
    auth=Key("send"),
    response={200: ArchivedOut, **PROBLEMS},
    summary="Archive a template",
)
def archive_template(request: HttpRequest, template: str) -> dict[str, Any]:
    """New requests cannot name it; accepted ones are unchanged."""
    caller = _live_key_caller(request)
    return {
        "changed": versions.archive_template(_template_of_caller(request, template), Actor(caller.prefix)),
        "archived": True,
    }


@router.post(
    "/templates/{template}/restore",
    auth=Key("send"),
    response={200: ArchivedOut, **PROBLEMS},
    summary="Use an archived template again",
)
def restore_template(request: HttpRequest, template: str) -> dict[str, Any]:
    """Repeats change nothing."""
    caller = _live_key_caller(request)
    return {
        "changed": versions.restore_template(_template_of_caller(request, template), Actor(caller.prefix)),
        "archived": False,
    }


def _live_key_caller(request: HttpRequest) -> Caller:
    """Return the caller. Raises Problem for a test key, which may not change templates that live keys send."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    if caller.test:
        raise Problem("forbidden", "A test key may use templates, and not change them: live keys send them, too.")
    return caller


def _template_of_caller(request: HttpRequest, name: str) -> Template:
    caller: Caller = request.auth  # type: ignore[attr-defined]
    found = Template.objects.filter(sponsor=caller.sponsor_id, name=name).first() if name.isprintable() else None
    if found is None:
        raise Problem("not-found", NOT_YOURS)
    return found


def _pointer_of_fault(fault: str) -> str:
    places = {"the subject": "/subject", "the text": "/text", "a text": "/text", "the header": "/headers"}
    return next((place for begin, place in places.items() if fault.startswith(begin)), "/body")


def _listed_template(row: Template, newest: TemplateVersion) -> dict[str, Any]:
    facts = {"name": row.name, "channel": row.channel, "archived": row.archived_at is not None}
    return facts | {"newest": newest.number, "made_by": newest.made_by, "made_at": newest.made_at}


def _version_facts(version: TemplateVersion) -> dict[str, Any]:
    names = ("subject", "body", "html", "text", "remark", "made_by", "made_at")
    template, says = version.template, versions.content_of(version)
    fields, optional = versions.fields_of(version)
    return {
        "name": template.name,
        "channel": template.channel,
        "archived": template.archived_at is not None,
        "version": version.number,
        **{name: getattr(version, name) for name in names},
        "headers": [{"name": name, "value": value} for name, value in says.headers],
        "mail_class": MailClass(template.mail_class).word if template.mail_class else None,
        "fields": fields,
        "optional": optional,
    }
