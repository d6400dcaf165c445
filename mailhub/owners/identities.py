"""Pages of sender identities, with what receivers look at in the DNS; and of topics. No stored key is shown."""

from typing import Any

from django.contrib import messages
from django.contrib.admin.models import ADDITION
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from campaigns.deliverability import findings, identity_checks
from campaigns.models import Identity, Sponsor, Topic
from campaigns.models.campaigns import sponsors_of
from mailhub.owners.access import actor, page
from vendors import history
from vendors.models import Vendor

LOOK, LOOK_TOPICS, ADD_TOPIC = "campaigns.view_identity", "campaigns.view_topic", "campaigns.add_topic"
LOOKS = {findings.OK: "good", findings.MISSING: "bad", findings.WRONG: "bad", findings.NO_ANSWER: "warn"}
MOST = 500


@page(LOOK)
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """The sender identities of the user's sponsors."""
    rows = Identity.objects.of_sponsors(sponsors_of(request.user)).select_related("sponsor").defer("secret")
    return render(request, "owners/identities/list.html", {"identities": rows.order_by("sponsor__name", "name")[:MOST]})


@page(LOOK)
@require_http_methods(["GET", "POST"])
def identity(request: HttpRequest, pk: int) -> HttpResponse:
    """One identity; a press of the button asks the DNS what receivers would ask."""
    rows = Identity.objects.of_sponsors(sponsors_of(request.user)).select_related("sponsor")
    row = get_object_or_404(rows, pk=pk)
    found: list[Any] = []
    if request.method == "POST" and row.channel == Vendor.Channel.EMAIL:
        found = [(one, LOOKS.get(one.status, "idle")) for one in identity_checks.check(row)]
    facts = {"identity": row, "findings": found, "asked": request.method == "POST"}
    return render(request, "owners/identities/identity.html", facts)


@page(LOOK_TOPICS)
@require_http_methods(["GET", "POST"])
def topics(request: HttpRequest) -> HttpResponse:
    """What the sponsors write about; a new one."""
    mine = Sponsor.objects.of_sponsors(sponsors_of(request.user))
    may: bool = request.user.has_perm(ADD_TOPIC)
    fault, status = "", 200
    if request.method == "POST" and may:
        fault = _added(request, mine)
        if not fault:
            return redirect("topics")
        status = 422
    rows = Topic.objects.of_sponsors(sponsors_of(request.user)).select_related("sponsor")
    known = rows.order_by("sponsor__name", "name")[:MOST]
    facts = {"topics": known, "sponsors": mine[:MOST], "may": may, "fault": fault, "typed": request.POST}
    return render(request, "owners/identities/topics.html", facts, status=status)


def _added(request: HttpRequest, mine: Any) -> str:
    """Stores the topic that was typed; what is wrong with it, or nothing."""
    chosen = request.POST.get("sponsor", "")
    sponsor = get_object_or_404(mine, pk=int(chosen) if chosen.isdecimal() and len(chosen) < 19 else 0)
    name, title = (request.POST.get(one, "").replace("\0", "").strip() for one in ("name", "title"))
    row = Topic(sponsor=sponsor, name=name, title=title)
    try:
        row.full_clean(validate_unique=False, validate_constraints=False)
        with transaction.atomic():
            row.save()
            history.record(actor(request), Topic, [(row.pk, "added")], flag=ADDITION)
    except ValidationError as error:
        return " ".join(error.messages)
    except IntegrityError:
        known = Topic.objects.filter(sponsor=sponsor, name=row.name).first()
        if known is None or known.title != row.title:
            return _("There is a topic of this name already.")
    messages.success(request, _("The topic “%(title)s” is there.") % {"title": row.title})
    return ""
