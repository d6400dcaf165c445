"""The first step: content, vendor and sender. An incomplete message is saved, too."""

import json
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from django import forms
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from campaigns.doors.access import owners_page
from campaigns.doors.sandboxed import guard_frames
from campaigns.engine.ports import NotEntitled
from campaigns.lists.drafts import contents, keeping
from campaigns.lists.drafts.keeping import MESSAGE, Closed, Stale
from campaigns.lists.intake import BadInput
from campaigns.lists.intake.files import NewFile
from campaigns.lists.pages.drafts import LABELS, check_soon, draft_step, render_step, show_conflict
from campaigns.lists.pages.uploads import MAKE
from campaigns.models import Draft, Sponsor, TemplateVersion, Topic
from campaigns.models.campaigns import sponsors_of
from campaigns.models.identities import Urgent
from campaigns.senders import entitlements
from campaigns.texts.given_texts import given_name
from campaigns.texts.templates import MAX_SIZE, TemplateError
from vendors.condition.reading import condition_of_route, conditions_of_credentials
from vendors.condition.values import Condition, ConditionKind, name_condition
from vendors.instants import write_time
from vendors.mail_classes import MailClass
from vendors.said import show as show_sentence

MOST_SPONSORS = 200  # in the list of sponsors
SPLIT = ":"
CALLABLE = (ConditionKind.WORKS, ConditionKind.UNTRIED)


class MessageForm(forms.Form):
    """The message of a sponsor's draft. `message_values` are the draft's fields."""

    name = forms.CharField(
        max_length=200, label=LABELS["name"], help_text=gettext_lazy("For you; recipients do not see it.")
    )
    by = forms.ChoiceField(label=LABELS["credential"])
    identity: Any = forms.ModelChoiceField(None, required=False, label=LABELS["identity"])
    topic: Any = forms.ModelChoiceField(None, required=False, label=LABELS["topic"])
    transactional = forms.BooleanField(required=False, label=LABELS["transactional"])
    mail_class = forms.TypedChoiceField(
        required=False, label=LABELS["mail_class"], coerce=int, empty_value=None,
        help_text=gettext_lazy("Urgent messages go before those of all others, bulk messages after them."),
    )  # fmt: skip
    subject = forms.CharField(required=False, max_length=1000, label=LABELS["subject"], strip=False)
    html = forms.CharField(
        required=False, max_length=MAX_SIZE, widget=forms.Textarea, label=LABELS["html"], strip=False
    )
    text = forms.CharField(
        required=False, max_length=MAX_SIZE, widget=forms.Textarea, label=LABELS["text"], strip=False
    )

    def __init__(self, sponsor: Sponsor, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        fields: dict[str, Any] = self.fields
        self.logins, self.routes = contents.offered_credentials(sponsor), contents.offered_routes(sponsor)
        logins = self.logins
        several = {one.vendor_id for one in logins if sum(other.vendor_id == one.vendor_id for other in logins) > 1}
        used = {one.pk for of in self.routes.values() for one in of}
        conditions = conditions_of_credentials({*used, *(one.pk for one in logins)})
        now = {f"credential:{one.pk}": conditions[one.pk] for one in logins}
        now |= {
            f"route:{route.pk}": condition_of_route(conditions[one.pk] for one in of)
            for route, of in self.routes.items()
        }
        names = {f"credential:{one.pk}": _login_label(one, one.vendor_id in several) for one in logins}
        names |= {
            f"route:{one.pk}": _("Route %(name)s (%(channel)s)")
            % {"name": one.name, "channel": _(one.get_channel_display())}
            for one in self.routes
        }
        self.callable = [value for value in names if now[value].kind in CALLABLE]
        by = [
            (value, name if value in self.callable else _mark_choice(name, now[value])) for value, name in names.items()
        ]
        fields["by"].choices = by
        fields["identity"].queryset = sponsor.identities.filter(enabled=True).defer("secret")
        fields["identity"].label_from_instance = lambda one: f"{one.shown} ({one.name})"
        fields["identity"].empty_label = _("as usual")
        kept = (kwargs.get("initial") or {}).get("topic")  # shown until another one is chosen
        fields["topic"].queryset = sponsor.topics.filter(Q(archived_at=None) | Q(pk=kept))
        fields["topic"].label_from_instance = _topic_title
        fields["topic"].error_messages["invalid_choice"] = _("This topic is archived: choose another one.")
        fields["topic"].empty_label = _("none")
        if not sponsor.may_be_transactional:
            del fields["transactional"]
        classes = [one for one in MailClass if one != MailClass.URGENT or self._offers_urgent(sponsor)]
        fields["mail_class"].choices = [("", _("by its kind")), *((one.value, _(one.word)) for one in classes)]
        for name in ("identity", "topic"):
            if not (self.data.get(name) or fields[name].queryset.exists()):
                del fields[name]
        self.nobody = not by
        chosen = (kwargs.get("initial") or {}).get("by")
        if not chosen:
            self.initial["by"] = self.prefer_working(list(names))

    def _offers_urgent(self, sponsor: Sponsor) -> bool:
        """Return True if the sponsor may send a list as urgent over one of its vendors, or has chosen that already."""
        is_chosen = self.initial.get("mail_class") == MailClass.URGENT
        return is_chosen or Urgent.ALL in entitlements.rights_of(sponsor.pk).urgent.values()

    @property
    def channels(self) -> dict[str, str]:
        """Return the channel of each choice of `by`."""
        by_login = {f"credential:{one.pk}": one.vendor.channel for one in self.logins}
        return by_login | {f"route:{one.pk}": one.channel for one in self.routes}

    def prefer_working(self, values: Sequence[str]) -> str:
        """Return the first of these that can send now, or "". Then the user has to choose."""
        field: Any = self.fields["by"]
        preferred = next((one for one in values if one in self.callable), "")
        if values and not preferred and field.choices[0][0]:
            field.choices = [("", _("choose")), *field.choices]
        return preferred

    @property
    def message_values(self) -> dict[str, Any]:
        """Return the values with line feeds as in every template; browsers send CR LF."""
        data = self.cleaned_data
        kind, _sign, number = data["by"].partition(SPLIT)
        texts = {name: data[name].replace("\r\n", "\n") for name in ("subject", "html", "text")}
        return {
            "name": data["name"],
            "credential_id": int(number) if kind == "credential" else None,
            "route_id": int(number) if kind == "route" else None,
            "identity_id": getattr(data.get("identity"), "pk", None),
            "topic_id": getattr(data.get("topic"), "pk", None),
            "transactional": data.get("transactional", False),
            "mail_class": data.get("mail_class"),
            **texts,
        }


def _topic_title(topic: Topic) -> str:
    return _("%(title)s (archived)") % {"title": topic.title} if topic.archived_at else topic.title


def _login_label(login: Any, several: bool) -> str:
    who = f"{login.vendor.name}, {login.name}" if several else login.vendor.name
    return f"{who} ({_(login.vendor.get_channel_display())})"


def _mark_choice(name: str, condition: Condition) -> str:
    """Return the name of a choice that cannot send now, with the reason in short."""
    why = show_sentence(name_condition(condition, write_time))
    return _("%(name)s: cannot send now: %(why)s") % {"name": name, "why": why}


def template_of(data: Mapping[str, Any], sponsor: Sponsor, draft: Draft | None = None) -> TemplateVersion | None:
    """Return the version that the page or form names, among the sponsor's templates in use, or the draft's."""
    asked = data.get("template", "")
    if draft and (not asked or asked == str(draft.template_version_id)):
        return draft.template_version
    rows = TemplateVersion.objects.filter(template__sponsor=sponsor, template__archived_at=None)
    pk = int(asked) if asked.isdecimal() and len(asked) < 19 else 0
    return rows.select_related("template").filter(pk=pk).first()


def _initial_from_template(version: TemplateVersion, form: MessageForm) -> dict[str, Any]:
    """Return a form's initial values from a template; the vendor is the first one for its channel that can send."""
    routes = [f"route:{one.pk}" for one in form.routes if one.channel == version.template.channel]
    logins = [f"credential:{one.pk}" for one in form.logins if one.vendor.channel == version.template.channel]
    texts = {"html": version.body, "text": version.text} if version.html else {"html": "", "text": version.body}
    return {"subject": version.subject, **texts, "by": form.prefer_working([*logins, *routes])}


def _values_with_headers(form: MessageForm, version: TemplateVersion | None, draft: Draft | None) -> dict[str, Any]:
    """Return the form's values, with the headers of a newly chosen template."""
    if version is None or (draft and version.pk == draft.template_version_id):
        return form.message_values
    return {**form.message_values, "template_version_id": version.pk, "headers": version.headers}


def initial_message(draft: Draft) -> dict[str, Any]:
    by = f"route:{draft.route_id}" if draft.route_id else f"credential:{draft.credential_id}"
    names = ("name", "identity_id", "topic_id", "transactional", "mail_class", "subject", "html", "text")
    return {"by": by, **{name.removesuffix("_id"): getattr(draft, name) for name in names}}


@owners_page(*MAKE)
def new_campaign(request: HttpRequest) -> HttpResponse:
    """Show the first page of a new campaign. Nothing is stored before the first save."""
    sponsors = Sponsor.objects.of_sponsors(sponsors_of(request.user)).order_by("name")
    chosen = request.POST.get("sponsor") or request.GET.get("sponsor")
    if chosen is None:
        known = list(sponsors[:MOST_SPONSORS])
        if len(known) != 1:
            return render(request, "owners/wizard/sponsors.html", {"sponsors": known})
        [sponsor] = known
    else:
        sponsor = get_object_or_404(sponsors, pk=chosen if chosen.isdecimal() else 0)
    if request.method != "POST":
        version, form = template_of(request.GET, sponsor), MessageForm(sponsor)
        if version:
            form.initial = {**form.initial, **_initial_from_template(version, form)}
        return _render_message_page(request, None, sponsor, form, key=uuid.uuid4(), template=version)
    form, version = MessageForm(sponsor, request.POST), template_of(request.POST, sponsor)
    try:
        key = uuid.UUID(request.POST.get("key", ""))
    except ValueError:
        key = uuid.uuid4()
    if not form.is_valid():
        return _render_message_page(request, None, sponsor, form, key=key, template=version)
    try:
        draft = keeping.create_draft(sponsor, key, request.user, _values_with_headers(form, version, None))
        _attach_given_files(request, draft)
    except Closed as closed:
        return redirect("draft_sent", closed.draft.pk)
    except BadInput as error:
        form.add_error(None, str(error))
        return _render_message_page(request, None, sponsor, form, key=key, template=version)
    return _go_onward(request, draft)


@draft_step
def edit_message(request: HttpRequest, draft: Draft) -> HttpResponse:
    """Show the message of a draft, with the fields of its list."""
    version = template_of(request.POST or request.GET, draft.sponsor, draft)
    if request.method != "POST":
        form = MessageForm(draft.sponsor, initial=initial_message(draft))
        if version and "template" in request.GET:
            same = draft.channel == version.template.channel
            form.initial = {
                **form.initial,
                **_initial_from_template(version, form),
                **({"by": form.initial["by"]} if same else {}),
            }
        return _render_message_page(request, draft, draft.sponsor, form, _message_faults(draft), template=version)
    form = MessageForm(draft.sponsor, request.POST)
    if not form.is_valid():
        return _render_message_page(request, draft, draft.sponsor, form, template=version)
    values = _values_with_headers(form, version, draft)
    try:
        with transaction.atomic():
            saved = keeping.save(draft, MESSAGE, request.POST.get("seen", ""), values)
            _attach_given_files(request, saved)
    except BadInput as error:
        form.add_error(None, str(error))
        return _render_message_page(request, draft, draft.sponsor, form, template=version)
    except Stale as stale:
        return show_conflict(request, stale.draft, MESSAGE, values)
    check_soon(saved)
    return _go_onward(request, saved)


def _attach_given_files(request: HttpRequest, draft: Draft) -> None:
    files = [
        NewFile(given_name(one.name or "") or "file", one.size or 0, partial(_read_whole, one), one.content_type or "")
        for one in request.FILES.getlist("files")
    ]
    removed = [int(one) for one in request.POST.getlist("remove") if one.isdecimal() and len(one) < 10]
    if files or removed:
        keeping.attach_files(draft, files, removed)


def _read_whole(file: Any) -> bytes:
    file.seek(0)
    return bytes(file.read())


def _message_faults(draft: Draft) -> list[str]:
    """Return the faults that keep the message from being sent."""
    try:
        contents.content_of_draft(draft)
    except BadInput as error:
        return [str(one) for one in error.problems]
    except (TemplateError, NotEntitled) as error:
        return [str(error)]
    return []


def _go_onward(request: HttpRequest, draft: Draft) -> HttpResponse:
    if "stay" in request.POST or _message_faults(draft):
        return redirect("draft_message", draft.pk)
    return redirect("draft_recipients", draft.pk)


def _render_message_page(
    request: HttpRequest,
    draft: Draft | None,
    sponsor: Sponsor,
    form: MessageForm,
    faults: "list[str] | tuple[()]" = (),
    **more: Any,
) -> HttpResponse:
    facts: Mapping[str, Any] = (draft.facts or {}) if draft else {}
    fields = [one["field"] for one in facts.get("columns", ())]
    shown = ["recipient", *(name for name in fields if name.isidentifier() and name != "recipient")]
    context = {
        "sponsor": sponsor,
        "form": form,
        "faults": faults,
        "templates": contents.offered_templates(sponsor, more.get("template")),
        "template_is": draft is not None
        and contents.template_of_draft(draft) is not None
        and "template" not in request.GET,
        "files": keeping.list_draft_files(draft) if draft else (),
        "fields": [f"{{{{ {name} }}}}" for name in shown],
        "has_list": bool(fields),
        "channels": json.dumps(form.channels),
        "seen": request.POST.get("seen") or (draft.seen if draft else ""),
    }
    return guard_frames(render_step(request, "message", draft, {**context, **more}))
