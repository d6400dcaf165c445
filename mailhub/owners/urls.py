"""URLs of the pages of campaign owners."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import URLPattern, path

from mailhub.owners import home


def urls() -> list[URLPattern]:
    log_in = LoginView.as_view(template_name="owners/login.html", redirect_authenticated_user=True)
    return [
        path("login/", log_in, name="login"),
        path("logout/", LogoutView.as_view(next_page="login"), name="logout"),
        path("", home.index, name="home"),
    ]
