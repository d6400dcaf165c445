"""Saved look-ups: users' names for lists of the operators' pages, with filters and searches."""

from typing import Any
from urllib.parse import urlsplit

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

from mailhub.models import SavedLook

MOST = 30  # of a user


def looks_of_list(request: HttpRequest) -> list[SavedLook]:
    """Return this user's look-ups of this list, by name."""
    return list(SavedLook.objects.filter(user=request.user.pk, address__startswith=f"{request.path}?")[:MOST])


def save(request: HttpRequest) -> HttpResponse:
    """Save name and address (POST); an existing name is replaced."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    name, address = request.POST.get("name", "").strip()[:60], request.POST.get("address", "")
    home = reverse("admin:index")
    ours = url_has_allowed_host_and_scheme(address, None) and address.startswith(home) and len(address) <= 1000
    if not ours:
        messages.error(request, _("Only a list of these pages can be saved."))
        return redirect(home)
    mine = SavedLook.objects.filter(user=request.user.pk)
    if not name or not urlsplit(address).query:
        messages.warning(request, _("Choose a filter or search for something, and give it a name."))
    elif mine.count() >= MOST and not mine.filter(name=name).exists():
        messages.warning(request, _("Nobody has more than %s saved look-ups: forget one first.") % MOST)
    else:
        user: Any = request.user
        SavedLook.objects.update_or_create(user=user, name=name, defaults={"address": address})
        messages.success(request, _("Saved as “%s”.") % name)
    return redirect(address)


def forget_look(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete one of the user's own look-ups (POST)."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    look = get_object_or_404(SavedLook, pk=pk, user=request.user.pk)
    look.delete()
    messages.success(request, _("“%s” is forgotten.") % look.name)
    return redirect(look.address)
