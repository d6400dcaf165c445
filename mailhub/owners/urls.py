"""URLs of the pages of campaign owners: each feature has its own."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import URLPattern, path

from campaigns.approvals import pages as approvals
from campaigns.audience.pages import urls as audience
from campaigns.content.pages import urls as content
from campaigns.integrations.pages import urls as integrations
from campaigns.lists.pages import urls as lists
from campaigns.operations.pages import urls as operations
from campaigns.reporting.pages import urls as reporting
from campaigns.senders import pages as senders
from campaigns.suppression.pages import urls as suppression


def urls() -> list[URLPattern]:
    log_in = LoginView.as_view(template_name="owners/login.html", redirect_authenticated_user=True)
    return [
        path("login/", log_in, name="login"),
        path("logout/", LogoutView.as_view(next_page="login"), name="logout"),
        *reporting.urls(),
        *approvals.urls(),
        *lists.urls(),
        *content.urls(),
        *integrations.urls(),
        *suppression.urls(),
        *audience.urls(),
        *senders.urls(),
        *operations.urls(),  # last: a decision's address has any word
    ]
