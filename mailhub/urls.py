from django.contrib import admin
from django.urls import path
from django.views.generic import RedirectView

from mailhub.front.api import api

admin.site.site_header = admin.site.site_title = "mailhub"
admin.site.index_title = "Operations"

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("api/v1/", api.urls),
]
