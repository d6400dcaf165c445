"""The language of pages: the one that the user has chosen, else the one that the browser asks for."""

from typing import Any

from django.conf import settings
from django.forms.renderers import DjangoTemplates
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.locale import LocaleMiddleware
from django.utils import translation
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext, gettext_noop

from vendors.said import show

# Programs read the paths below in one language, and recipients in theirs (campaigns/suppression/pages/phrases.py).
NOT_PAGES = ("/api/", "/unsubscribe/")
# Texts of static/mailhub/*.js, by their English.
OF_SCRIPTS = (
    gettext_noop("Log in again"),
    gettext_noop("You are logged out"),
    gettext_noop("Log in again in a new tab; this page then goes on by itself."),
    gettext_noop("You may not see this any more"),
    gettext_noop("Ask whoever gives permissions, and load the page again."),
    gettext_noop("The server cannot answer"),
    gettext_noop("The server does not answer"),
    gettext_noop("It says {status}: its database or its Redis may be away."),
    gettext_noop("It is asked again every few seconds, and this page then goes on by itself."),
    gettext_noop("Sending does not depend on this page."),
    gettext_noop("This page shows the state of {time}."),
    gettext_noop("{vendor} limit"),
    gettext_noop("most {count} a minute"),
    gettext_noop("limit {count} a minute"),
    gettext_noop("no limit"),
    gettext_noop("Minute"),
    gettext_noop("Time"),
)


class PagesLanguage(LocaleMiddleware):
    """Django's middleware for pages only. After the request a thread uses English again."""

    async_capable = False

    def __call__(self, request: HttpRequest) -> Any:
        with translation.override(settings.LANGUAGE_CODE):
            if request.path_info.startswith(NOT_PAGES):
                return self.get_response(request)
            return super().__call__(request)

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        patch_vary_headers(response, ("Cookie",))
        return super().process_response(request, response)


class FaultsInLanguage(DjangoTemplates):
    """Renders forms. Models and adapters report errors as data; here they are put into the language of the page."""

    def render(self, template_name: str, context: Any, request: Any = None) -> Any:
        if template_name.startswith("django/forms/errors/list/"):
            context = {**context, "errors": [show(str(one)) for one in context["errors"]]}
        return super().render(template_name, context, request)


def texts_of_scripts() -> dict[str, str]:
    """Return translations for scripts; {} in English."""
    if translation.get_language() == settings.LANGUAGE_CODE:
        return {}
    return {text: gettext(text) for text in OF_SCRIPTS}
