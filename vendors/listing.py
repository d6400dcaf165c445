"""Base classes for the admin's lists: restricted look-ups, read-only rows, a paginator for large tables."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import get_fields_from_path
from django.contrib.admin.widgets import RelatedFieldWidgetWrapper
from django.contrib.auth.models import Permission
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db import DataError, IntegrityError, models, transaction
from django.db.models import Model
from django.db.models.constants import LOOKUP_SEP
from django.forms import Media
from django.http import HttpRequest
from django.shortcuts import redirect
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext, gettext_lazy, gettext_noop, override
from psycopg.errors import UniqueViolation

from vendors import history
from vendors.condition.values import Condition, ConditionKind, describe_condition
from vendors.instants import check_instant, write_time
from vendors.ownership import owned_vendors
from vendors.said import show

COUNTED = 10_000  # rows; later ones are found by filters

if TYPE_CHECKING:  # where alone these classes of Django have parameters
    _ModelAdmin = admin.ModelAdmin[Any]
    _BaseAdmin = admin.options.BaseModelAdmin[Any]
    _InlineFormSet = forms.BaseInlineFormSet[Any, Any, Any]
    _Inline = admin.TabularInline[Any, Any]
    _Paginator = Paginator[Any]
else:
    _ModelAdmin, _BaseAdmin = admin.ModelAdmin, admin.options.BaseModelAdmin
    _InlineFormSet, _Inline, _Paginator = forms.BaseInlineFormSet, admin.TabularInline, Paginator


def badge(word: str, look: str = "idle") -> SafeString:
    """Show a state as text on a colour, never as a colour alone. `look`: good, going, warn, bad or idle.

    The word is stored and compared in English, and translated here for the page.
    """
    return format_html('<span class="badge {}">{}</span>', look, gettext(word) if word else "")


CONDITIONS = {  # the word and the style of the badge of a condition
    ConditionKind.WORKS: (gettext_noop("works"), "good"),
    ConditionKind.UNTRIED: (gettext_noop("not called yet"), "idle"),
    ConditionKind.SILENT: (gettext_noop("silent"), "warn"),
    ConditionKind.FAILING: (gettext_noop("failing"), "bad"),
    ConditionKind.SHUT: (gettext_noop("shut"), "bad"),
}


def condition_badge(condition: Condition, *, disclosed: bool = True) -> SafeString:
    """Return a badge for a condition, with the sentence that tells it. `disclosed`: the reader may know the reason."""
    word, look = CONDITIONS[condition.kind]
    if condition.kind in (ConditionKind.WORKS, ConditionKind.UNTRIED):
        return badge(word, look)
    said = show(describe_condition(condition, write_time, is_disclosed=disclosed))
    return format_html("{} <span>{}</span>", badge(word, look), said)


def flag_column(field: str, word: str, look: str = "idle", title: str = "") -> Callable[[Any], str]:
    """Return a column for a yes-or-no field: a badge with this word, or nothing. Crosses and ticks say too little."""

    @admin.display(description=gettext_lazy(title or field.replace("_", " ")), ordering=field, empty_value="")
    def show_flag(row: Any) -> str:
        return badge(word, look) if getattr(row, field) else ""

    return show_flag


def choice_column(field: str) -> Callable[[Any], str]:
    """Return a column for a field with named values: the value's name, in the language of the page."""

    @admin.display(description=gettext_lazy(field.replace("_", " ")), ordering=field)
    def show_choice(row: Any) -> str:
        label = getattr(row, f"get_{field}_display")()
        return gettext(str(label)) if label else "-"

    return show_choice


def row_title(row: Model) -> str:
    """Return the title of a row's page: its name, or its kind and number ("Job 6"), in the language of the page."""
    name = str(row)
    # names were typed by somebody and stay as they are
    return capfirst(name) if name.islower() and not hasattr(row, "name") else name


DO = {
    "add": gettext_noop("Can add %(what)s"),
    "change": gettext_noop("Can change %(what)s"),
    "delete": gettext_noop("Can delete %(what)s"),
    "view": gettext_noop("Can view %(what)s"),
}


def permission_name(row: Permission) -> str:
    """Return a permission's name in the language of the page; Django stores it in English."""
    verb, kind = row.codename.partition("_")[0], row.content_type.model_class()
    said = gettext(row.name)
    if kind and verb in DO and row.codename == f"{verb}_{kind._meta.model_name}":
        said = gettext(DO[verb]) % {"what": kind._meta.verbose_name}
    return f"{row.content_type} | {said}"


def clamp_name(text: Any) -> SafeString:
    """Show a name of any length in at most three lines, in full on hover."""
    return format_html('<span class="clamp" title="{}">{}</span>', text, text)


DATE: Any = {"type": "date", "aria-label": gettext_lazy("date")}
TIME: Any = {"type": "time", "step": "1", "aria-label": gettext_lazy("time")}
DATE_FORMAT, TIME_FORMAT = "%Y-%m-%d", "%H:%M:%S"  # those of browsers, in any language


class StoredInEnglish(_ModelAdmin):
    """An admin class with a history that names rows in English, in any user's language."""

    def log_addition(self, *args: Any) -> Any:
        with override(settings.LANGUAGE_CODE):
            return super().log_addition(*args)

    def log_change(self, *args: Any) -> Any:
        """Log a change; a sentence of the program is kept as data, too."""
        with override(settings.LANGUAGE_CODE):
            entry = super().log_change(*args)
        history.keep_sentences([entry])
        return entry

    def log_deletions(self, *args: Any) -> Any:
        with override(settings.LANGUAGE_CODE):
            return super().log_deletions(*args)


class MomentField(forms.SplitDateTimeField):
    """A time in the current zone. Times that cannot be read, or not be shown in every zone, are invalid."""

    def compress(self, data_list: Any) -> datetime | None:
        found = super().compress(data_list)
        try:
            return found and check_instant(found)
        except ValueError:
            raise ValidationError(self.error_messages["invalid_date"], code="invalid_date") from None


class PlainForms(_BaseAdmin):
    """Forms without scripts: the browser's own fields for dates and times, check boxes for several choices.

    A related row is added on its own page; Django's pop-ups need a third of a megabyte of scripts.
    """

    formfield_overrides: ClassVar[Any] = {
        models.DateField: {"widget": forms.DateInput(DATE, DATE_FORMAT)},
        models.TimeField: {"widget": forms.TimeInput(TIME, TIME_FORMAT)},
        models.DateTimeField: {
            "form_class": MomentField,
            "widget": forms.SplitDateTimeWidget(None, DATE_FORMAT, TIME_FORMAT, DATE, TIME),
        },
        models.ManyToManyField: {"widget": forms.CheckboxSelectMultiple({"class": "boxes"})},
    }
    filter_horizontal = ()

    @property
    def media(self) -> Media:
        return Media()

    def formfield_for_choice_field(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Translate the choices, which commands name in English. Languages keep their own names."""
        field: Any = super().formfield_for_choice_field(db_field, request, **kwargs)
        if db_field.name != "language":
            field.choices = [(value, gettext(str(label)) if label else label) for value, label in field.choices]
        return field

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        field: Any = super().formfield_for_manytomany(db_field, request, **kwargs)
        if db_field.related_model is Permission:
            field.label_from_instance = permission_name
        return field

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if field and isinstance(field.widget, RelatedFieldWidgetWrapper):
            field.widget = field.widget.widget
        return field


TABLE = "admin/inline_rows.html"


class OfOthers(PlainForms, StoredInEnglish):
    """An admin class of another app, with forms without scripts and lists without crosses and ticks."""

    def get_inline_instances(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        found = super().get_inline_instances(request, obj)
        for one in found:
            one.template = TABLE if isinstance(one, admin.TabularInline) else one.template
        return found

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Reject look-ups that the database refuses, such as an extreme offset or a year without a next one."""
        try:
            with transaction.atomic():
                return super().get_changelist_instance(request)
        except (DataError, ValueError, OverflowError) as why:
            raise IncorrectLookupParameters from why

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        return [self._shown_column(one) for one in super().get_list_display(request)]

    def _shown_column(self, one: Any) -> Any:
        known = {field.name: field for field in self.model._meta.fields if isinstance(field, models.BooleanField)}
        return flag_column(one, str(known[one].verbose_name), "good") if one in known else one


def make_plain(site: admin.AdminSite) -> None:
    for model, theirs in list(site._registry.items()):
        if not isinstance(theirs, PlainForms):
            site.unregister(model)
            site.register(model, type(type(theirs).__name__, (OfOthers, type(theirs)), {}))


class NamedFields(_InlineFormSet):
    """Inline rows with labelled check boxes; otherwise only the column's head would explain them."""

    @classmethod
    def get_deletion_widget(cls) -> Any:
        return forms.CheckboxInput({"aria-label": gettext_lazy("Delete?")})


class Rows(PlainForms, _Inline):
    """Rows edited along with their parent, with an empty one to add another."""

    extra = 1
    formset = NamedFields
    template = TABLE
    labels: ClassVar[dict[str, Any]] = {}  # heads of columns that say more than the names of the fields

    def tell_row(self, row: Any) -> str:
        """Return a row as a sentence, for those who may only look."""
        return str(row)

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if field:
            field.widget.attrs["aria-label"] = capfirst(db_field.verbose_name)
            field.label = self.labels.get(db_field.name, field.label)
        return field


class OwnLookups(PlainForms, StoredInEnglish):
    """An admin list that allows only the look-ups of its own filters.

    With other look-ups a user could find out a masked or hidden field letter by letter. Whole tables are never counted.
    """

    show_facets = admin.ShowFacets.NEVER
    show_full_result_count = False

    def get_paginator(self, request: HttpRequest, queryset: Any, per_page: int, *args: Any, **options: Any) -> Any:
        return CappedPaginator(queryset, per_page, *args, **options)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Show and store a row.

        Two people may store the same concurrently: the second is told, after all checks passed.
        """
        try:
            return super().changeform_view(request, *args, **kwargs)
        except IntegrityError as error:
            if not isinstance(error.__cause__, UniqueViolation):
                raise
            said = gettext("Nothing was stored: somebody else has stored the same at the same moment. Look again.")
            messages.error(request, said)
            return redirect(request.get_full_path())

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> Any:
        """Show Django's history page with the row named as on its own page."""
        page: Any = super().history_view(request, object_id, extra_context)
        if row := (getattr(page, "context_data", None) or {}).get("object"):
            page.context_data["title"] = gettext("Change history: %s") % row_title(row)
        return page

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        return lookup in self._own_lookups

    @cached_property
    def _own_lookups(self) -> frozenset[str]:
        return frozenset(name for one in self.list_filter for name in self._offered_parameters(one))

    def _offered_parameters(self, one: Any) -> tuple[str, ...]:
        """Return the query parameters of a filter: our own, or Django's for a field, possibly across relations."""
        if isinstance(one, tuple):
            one = one[0]
        if not isinstance(one, str):
            return getattr(one, "names", None) or (one.parameter_name,)
        field: Any = get_fields_from_path(self.model, one)[-1]
        if field.is_relation:
            one_row = LOOKUP_SEP.join((one, field.related_model._meta.pk.name, "exact"))
            return (one_row, f"{one}__isnull")
        return (one, f"{one}__exact", f"{one}__isnull")


class OfOwnVendors(admin.RelatedFieldListFilter):
    """Filters by vendor, among those that the user governs."""

    def field_choices(self, field: Any, request: HttpRequest, model_admin: Any) -> list[Any]:
        offered = self.offered_vendors(request.user)
        limits = {} if offered is None else {"limit_choices_to": {"pk__in": offered}}
        ordering = self.field_admin_ordering(field, request, model_admin)
        return list(field.get_choices(include_blank=False, ordering=ordering, **limits))

    def offered_vendors(self, user: Any) -> Any:
        """Return the ids of the vendors to offer; None: all."""
        return owned_vendors(user)


class ReadOnly(OwnLookups):
    """Rows that only the program writes. Permission to change them allows only the list's actions."""

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if row := kwargs.get("obj"):
            context |= {"title": row_title(row), "subtitle": None}
        return super().render_change_form(request, context, *args, **kwargs)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return obj is None and super().has_change_permission(request)


class CappedPaginator(_Paginator):
    """Counts at most COUNTED rows, so that page numbers do not need a count of millions.

    `known`: the number of rows, if it was counted elsewhere.
    """

    def __init__(self, *args: Any, known: int | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.known = known

    @cached_property
    def count(self) -> int:
        return min(COUNTED, self._counted)

    @property
    def is_capped(self) -> bool:
        return self._counted > COUNTED

    @cached_property
    def _counted(self) -> int:
        rows: Any = self.object_list
        if self.known is not None:
            return self.known
        number: int = rows.order_by()[: COUNTED + 1].count()
        return number
