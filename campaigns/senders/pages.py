"""Pages of sender identities, with their DNS checks, and of topics. Stored keys are never shown."""

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import ADDITION
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db import IntegrityError, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from campaigns.doors.access import deciding_actor, owners_page
from campaigns.models import Identity, Sponsor, Topic
from campaigns.models.campaigns import sponsors_of
from campaigns.senders import sender_changes
from campaigns.senders.deliverability import findings, identity_checks
from campaigns.senders.refused_senders import find_refused
from campaigns.texts.given_texts import given_value
from vendors import history
from vendors.adapters import dkim
from vendors.models import Vendor
from vendors.said import Said, gettext_noop, show

LOOK, ADD, CHANGE = (f"campaigns.{verb}_identity" for verb in ("view", "add", "change"))
LOOK_TOPICS, ADD_TOPIC = "campaigns.view_topic", "campaigns.add_topic"
LINES = ("numbers", "stop_texts", "start_texts", "help_texts")  # of SMS, one value in a line
LOOKS = {findings.OK: "good", findings.MISSING: "bad", findings.WRONG: "bad", findings.NO_ANSWER: "warn"}
EACH_PAGE = 50
MOST = 500  # sponsors to choose from


@owners_page(LOOK)
@require_GET
def list_senders_page(request: HttpRequest) -> HttpResponse:
    """Show the sender identities of the user's sponsors."""
    rows = Identity.objects.of_sponsors(sponsors_of(request.user)).select_related("sponsor").defer("secret")
    some = Paginator(rows.order_by("sponsor__name", "name"), EACH_PAGE).get_page(request.GET.get("page"))
    identities = list(some.object_list)
    refused = find_refused([row.pk for row in identities])
    shown = [(row, refused.get(row.pk)) for row in identities]
    return render(request, "owners/identities/list.html", {"identities": shown, "page": some})


@owners_page(LOOK)
@require_http_methods(["GET", "POST"])
def show_identity(request: HttpRequest, pk: int) -> HttpResponse:
    """Show an identity; POST asks the DNS as receivers would."""
    rows = Identity.objects.of_sponsors(sponsors_of(request.user)).select_related("sponsor")
    row = get_object_or_404(rows, pk=pk)
    found: list[Any] = []
    if request.method == "POST" and row.channel == Vendor.Channel.EMAIL:
        found = [(one, LOOKS.get(one.status, "idle")) for one in identity_checks.check_identity(row)]
    facts = {"identity": row, "findings": found, "asked": request.method == "POST", "record": _dkim_record(row)}
    facts["refused"] = find_refused([row.pk]).get(row.pk)
    return render(request, "owners/identities/identity.html", facts)


def _dkim_record(row: Identity) -> tuple[str, str] | None:
    """Return the name and value of its DKIM record, or None if its mails are not signed."""
    if not (signs := row.dkim_key):
        return None
    try:
        return f"{signs.selector}._domainkey.{signs.domain}", dkim.dns_record(signs)
    except ValueError:  # the stored key is invalid
        return None


def _lines_field(label: Any) -> forms.CharField:
    return forms.CharField(label=label, required=False, max_length=4_000, widget=forms.Textarea(attrs={"rows": 4}))


class SenderForm(forms.Form):
    """The form of a sender: the name and address recipients see, and where their replies go."""

    from_name = forms.CharField(label=gettext_lazy("Name that recipients see"), max_length=200, required=False)
    from_address = forms.CharField(label=gettext_lazy("Address that recipients see"), max_length=254)
    reply_to = forms.CharField(label=gettext_lazy("Answers go to"), max_length=460, required=False)
    return_path = forms.CharField(label=gettext_lazy("Bounces go to"), max_length=254, required=False)
    verp = forms.BooleanField(
        label=gettext_lazy("Bounces come back to mailhub: to an address of each message"), required=False
    )
    sender_id = forms.CharField(label=gettext_lazy("Sender of the SMS"), max_length=11, required=False)
    numbers = _lines_field(gettext_lazy("Numbers, one in a line"))
    stop_texts = _lines_field(gettext_lazy("Further words that ask as STOP does, one in a line"))
    start_texts = _lines_field(gettext_lazy("Further words that ask as START does, one in a line"))
    help_texts = _lines_field(gettext_lazy("Further words that ask as HELP does, one in a line"))
    help_answer = forms.CharField(
        label=gettext_lazy("Answer to HELP; empty: none is sent"), required=False, max_length=480, widget=forms.Textarea
    )
    default = forms.BooleanField(
        label=gettext_lazy("The default: of campaigns and requests that name none"), required=False
    )

    def __init__(self, row: Identity, given: Any = None) -> None:
        known = {name: getattr(row, name) for name in sender_changes.FIELDS[row.channel]}
        known |= {name: "\n".join(known[name]) for name in LINES if name in known}
        if row.default:  # only another default can replace it
            del known["default"]
        super().__init__(given, initial=known)
        for name in {*SenderForm.base_fields} - known.keys():
            del self.fields[name]

    def clean(self) -> dict[str, Any]:
        """Split fields with one value a line, without blank lines."""
        cleaned = super().clean() or {}
        lines = {name: cleaned[name].splitlines() for name in LINES if name in cleaned}
        return cleaned | {name: [one.strip() for one in found if one.strip()] for name, found in lines.items()}


class NewSenderForm(SenderForm):
    """The form of a new sender of one of the user's sponsors."""

    sponsor = forms.ModelChoiceField(Sponsor.objects.none(), label=gettext_lazy("Sponsor"), empty_label=None)
    name = forms.CharField(
        label=gettext_lazy("Name, by which campaigns and programs name it: letters, digits, . _ -"), max_length=50
    )
    field_order = ("sponsor", "name")

    def __init__(self, row: Identity, mine: Any, given: Any = None) -> None:
        super().__init__(row, given)
        field: Any = self.fields["sponsor"]
        field.queryset = mine


@owners_page(LOOK, ADD)
@require_http_methods(["GET", "POST"])
def add_identity(request: HttpRequest, channel: str) -> HttpResponse:
    """Add a sender for e-mail or SMS; a second press changes nothing."""
    if channel not in sender_changes.FIELDS:
        raise Http404
    row = Identity(channel=channel)
    form = NewSenderForm(row, Sponsor.objects.of_sponsors(sponsors_of(request.user)), request.POST or None)
    if request.method == "POST" and form.is_valid():
        for name, value in form.cleaned_data.items():
            setattr(row, name, value)
        try:
            if sender_changes.add_identity(row, deciding_actor(request)):
                messages.success(request, _("The sender identity “%(name)s” is there.") % {"name": row.name})
                return redirect("identity", row.pk)
            known = Identity.objects.get(sponsor=row.sponsor, name=row.name)
            if _is_so(known, row):
                messages.info(request, _("It was there already."))
                return redirect("identity", known.pk)
            form.add_error("name", _("There is a sender identity of this name already."))
        except ValidationError as error:
            _add_form_errors(form, error)
    facts = {"form": form, "channel": channel}
    return render(request, "owners/identities/add.html", facts, status=422 if form.errors else 200)


def _is_so(known: Identity, typed: Identity) -> bool:
    """Return True if the stored identity equals the form. Raises ValidationError."""
    typed.pk, typed.default = known.pk, known.default
    typed.full_clean(validate_unique=False, validate_constraints=False)
    return known.channel == typed.channel and sender_changes.version_of_sender(
        known
    ) == sender_changes.version_of_sender(typed)


def _add_form_errors(form: forms.Form, error: ValidationError) -> None:
    """Add the model's errors to their fields."""
    for name, texts in getattr(error, "message_dict", {None: error.messages}).items():
        form.add_error(name if name in form.fields else None, texts)


@owners_page(LOOK, CHANGE)
@require_http_methods(["GET", "POST"])
def edit_identity(request: HttpRequest, pk: int) -> HttpResponse:
    """Change a sender from the next job on; pending approvals must be checked again."""
    row = get_object_or_404(Identity.objects.of_sponsors(sponsors_of(request.user)).defer("secret"), pk=pk)
    form = SenderForm(row, request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            seen = request.POST.get("seen", "")
            changed = sender_changes.change_identity(row.pk, form.cleaned_data, deciding_actor(request), seen)
            messages.success(request, _("It is changed.") if changed else _("It was so already."))
            return redirect("identity", pk)
        except ValidationError as error:
            _add_form_errors(form, error)
    facts = {"identity": row, "form": form, "seen": sender_changes.version_of_sender(row)}
    return render(request, "owners/identities/edit.html", facts, status=422 if form.errors else 200)


@owners_page(LOOK, CHANGE)
@require_POST
def sign_identity(request: HttpRequest, pk: int) -> HttpResponse:
    """Sign its mails with a new key, or stop signing; a second press changes nothing."""
    mine = Identity.objects.of_sponsors(sponsors_of(request.user)).filter(channel=Vendor.Channel.EMAIL).defer("secret")
    get_object_or_404(mine, pk=pk)
    selector = request.POST.get("selector", "").replace("\0", "").strip()
    try:
        if "off" in request.POST:
            sender_changes.sign_no_more(pk, deciding_actor(request))
            messages.success(request, _("Its mails are not signed any more."))
        elif not selector:
            messages.error(request, _("Say under which name the key is in the DNS."))
        else:
            sender_changes.sign_mails(pk, selector, deciding_actor(request))
            messages.success(request, _("Its mails are signed. Enter the record below in the DNS now."))
    except ValidationError as error:
        messages.error(request, " ".join(map(show, error.messages)))
    return redirect("identity", pk)


@owners_page(LOOK, CHANGE)
@require_POST
def switch_identity(request: HttpRequest, pk: int) -> HttpResponse:
    """Switch on or off, as the form says, so that a second press changes nothing."""
    get_object_or_404(Identity.objects.of_sponsors(sponsors_of(request.user)).defer("secret"), pk=pk)
    on = request.POST.get("to") == "on"
    try:
        if sender_changes.change_identity(pk, {"enabled": on}, deciding_actor(request)):
            off = _("It is disabled: nothing new goes out as it.")
            messages.success(request, _("It is enabled: what was held goes on.") if on else off)
    except ValidationError as error:
        messages.error(request, " ".join(map(show, error.messages)))
    return redirect("identity", pk)


@owners_page(LOOK_TOPICS, "campaigns.change_topic")
@require_POST
def rename_topic(request: HttpRequest, pk: int) -> HttpResponse:
    """Change a topic's title."""
    row = get_object_or_404(Topic.objects.of_sponsors(sponsors_of(request.user)), pk=pk)
    try:
        title = given_value(request.POST.get("title", "").replace("\0", ""))
        if sender_changes.rename_topic(row.pk, title, deciding_actor(request)):
            messages.success(request, _("Recipients read “%(title)s” from now on.") % {"title": title})
    except ValidationError as error:
        messages.error(request, " ".join(map(show, error.messages)))
    return redirect("topics")


@owners_page(LOOK_TOPICS, "campaigns.delete_topic")
@require_POST
def remove_topic(request: HttpRequest, pk: int) -> HttpResponse:
    """Remove a topic that nothing names."""
    row = Topic.objects.of_sponsors(sponsors_of(request.user)).filter(pk=pk).first()
    if row is None:  # for example a second press
        return redirect("topics")
    if sender_changes.remove_topic(row, deciding_actor(request)):
        messages.success(request, _("The topic is removed."))
    else:
        text = _("It stays: campaigns name it, or recipients have unsubscribed from it. Archive it instead.")
        messages.error(request, text)
    return redirect("topics")


@owners_page(LOOK_TOPICS, "campaigns.change_topic")
@require_POST
def archive_topic_on_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Archive a topic, so that new campaigns cannot name it, or restore it."""
    row = get_object_or_404(Topic.objects.of_sponsors(sponsors_of(request.user)), pk=pk)
    archived = request.POST.get("archived") == "yes"
    if sender_changes.archive_topic(row.pk, archived, deciding_actor(request)):
        done = _("No new campaign can name “%(title)s”; recipients can still unsubscribe from it.")
        text = done if archived else _("Campaigns can name “%(title)s” again.")
        messages.success(request, text % {"title": row.title})
    return redirect("topics")


@owners_page(LOOK_TOPICS)
@require_http_methods(["GET", "POST"])
def show_topics(request: HttpRequest) -> HttpResponse:
    """Show the sponsors' topics; POST adds one."""
    mine = Sponsor.objects.of_sponsors(sponsors_of(request.user))
    may: bool = request.user.has_perm(ADD_TOPIC)
    fault, status = "", 200
    if request.method == "POST" and may:
        fault = _add_topic(request, mine)
        if not fault:
            return redirect("topics")
        status = 422
    rows = Topic.objects.of_sponsors(sponsors_of(request.user)).select_related("sponsor")
    some = Paginator(rows.order_by("sponsor__name", "name"), EACH_PAGE).get_page(request.GET.get("page"))
    facts = {
        "topics": some.object_list,
        "page": some,
        "sponsors": mine[:MOST],
        "may": may,
        "fault": fault,
        "typed": request.POST,
    }
    return render(request, "owners/identities/topics.html", facts, status=status)


def _add_topic(request: HttpRequest, mine: Any) -> str:
    """Store the topic from the form; return the fault, or an empty text."""
    chosen = request.POST.get("sponsor", "")
    sponsor = get_object_or_404(mine, pk=int(chosen) if chosen.isdecimal() and len(chosen) < 19 else 0)
    name, title = (given_value(request.POST.get(one, "").replace("\0", "")) for one in ("name", "title"))
    row = Topic(sponsor=sponsor, name=name, title=title)
    try:
        row.full_clean(validate_unique=False, validate_constraints=False)
        with transaction.atomic():
            row.save()
            history.record_changes(
                deciding_actor(request), Topic, [(row.pk, Said(gettext_noop("added")))], flag=ADDITION
            )
    except ValidationError as error:
        return " ".join(error.messages)
    except IntegrityError:
        known = Topic.objects.filter(sponsor=sponsor, name=row.name).first()
        if known is None or known.title != row.title:
            return _("There is a topic of this name already.")
        if known.archived_at:
            return _("There is a topic of this name already, and it is archived: restore it.")
    messages.success(request, _("The topic “%(title)s” is there.") % {"title": row.title})
    return ""


def urls() -> list[URLPattern]:
    return [
        path("senders/", list_senders_page, name="identities"),
        path("senders/add/<str:channel>/", add_identity, name="identity-add"),
        path("senders/<int:pk>/", show_identity, name="identity"),
        path("senders/<int:pk>/edit/", edit_identity, name="identity-edit"),
        path("senders/<int:pk>/sign/", sign_identity, name="identity-sign"),
        path("senders/<int:pk>/switch/", switch_identity, name="identity-switch"),
        path("senders/topics/", show_topics, name="topics"),
        path("senders/topics/<int:pk>/rename/", rename_topic, name="topic-rename"),
        path("senders/topics/<int:pk>/archive/", archive_topic_on_page, name="topic-archive"),
        path("senders/topics/<int:pk>/remove/", remove_topic, name="topic-remove"),
    ]
