"""URLs: the API, the pages for recipients, and the admin with the operators' pages."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from mailhub.front.api import api
from mailhub.operations import views as operations
from mailhub.public import unsubscribe

admin.autodiscover()
admin.site.site_header = admin.site.site_title = "mailhub"
admin.site.index_title = "Operations"

urlpatterns = [
    path("api/v1/", api.urls),  # first, since most requests are for the API
    path("unsubscribe/<str:token>", unsubscribe.page),
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", include(operations.urls())),
    path("admin/", admin.site.urls),
]
