"""The API with the yardstick as one more endpoint: it checks the key and does nothing."""

from django.http import HttpRequest, HttpResponse
from django.urls import path
from ninja import NinjaAPI

from campaigns.doors.front import problems
from campaigns.doors.front.keys import Key
from mailhub.urls import urlpatterns as project

nothing = NinjaAPI(title="yardstick", urls_namespace="yardstick", openapi_url=None)
problems.install_handlers(nothing)


@nothing.post("/nothing", auth=Key("send"))
def do_nothing(request: HttpRequest) -> HttpResponse:
    return HttpResponse(b"{}", "application/json", 202)


urlpatterns = [path("api/yardstick/", nothing.urls), *project]
