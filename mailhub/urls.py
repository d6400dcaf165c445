"""URLs: the API, the pages for recipients, the admin with the operators' pages, and the campaign owners' pages."""

from django.contrib import admin
from django.urls import include, path
from django.utils.translation import gettext_lazy
from django.views.i18n import set_language

from campaigns.suppression.pages import unsubscribe
from mailhub.front.api import api
from mailhub.operations import views as operations
from mailhub.owners import urls as owners
from vendors.listing import make_plain

admin.autodiscover()
make_plain(admin.site)
admin.site.site_header = admin.site.site_title = "mailhub"
admin.site.index_title = gettext_lazy("Operations")
admin.site.disable_action("delete_selected")  # rows are deleted one by one, on their pages

handler500 = "mailhub.failed_pages.show_failed_page"
urlpatterns = [
    path("api/v1/", api.urls),  # first, since most requests are for the API
    path("unsubscribe/<str:token>", unsubscribe.unsubscribe_page),
    path("language/", set_language, name="language"),
    path("admin/", include(operations.urls())),
    path("admin/", admin.site.urls),
    path("", include(owners.urls())),
]
