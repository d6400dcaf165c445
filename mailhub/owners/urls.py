"""URLs of the pages of campaign owners."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import URLPattern, path

from campaigns.approvals import pages as approvals
from campaigns.audience.pages import answers, finds
from campaigns.content.pages import template_editor, templates
from campaigns.integrations.pages import api_keys, webhooks
from campaigns.lists.pages import drafts, typed_letters
from campaigns.lists.pages import urls as wizard
from campaigns.operations.pages import decisions, home
from campaigns.reporting.pages import campaign, reports
from campaigns.senders import pages as identities
from campaigns.suppression.pages import suppressions


def urls() -> list[URLPattern]:
    log_in = LoginView.as_view(template_name="owners/login.html", redirect_authenticated_user=True)
    return [
        path("login/", log_in, name="login"),
        path("logout/", LogoutView.as_view(next_page="login"), name="logout"),
        path("", home.index, name="home"),
        path("find/", finds.index, name="find"),
        path("approvals/", approvals.index, name="approvals"),
        path("campaigns/<int:campaign_id>/approval/", approvals.detail, name="approval"),
        path("campaigns/<int:campaign_id>/approval/cost/", approvals.cost, name="approval-cost"),
        path("campaigns/live/", home.live, name="home-live"),
        path("campaigns/days/", home.days, name="home-days"),
        path("campaigns/<int:campaign_id>/", campaign.index, name="campaign"),
        path("campaigns/<int:campaign_id>/live/", campaign.live, name="campaign-live"),
        path("campaigns/<int:campaign_id>/failures/", campaign.failures, name="campaign-failures"),
        path("campaigns/<int:campaign_id>/parts/", campaign.parts, name="campaign-parts"),
        path("campaigns/<int:campaign_id>/recipients/", campaign.recipients, name="campaign-recipients"),
        path("campaigns/<int:campaign_id>/report/", reports.printed, name="campaign-report"),
        path("campaigns/<int:campaign_id>/report.<slug:kind>", reports.download, name="campaign-download"),
        path("campaigns/<int:campaign_id>/copy/", drafts.copy, name="campaign-copy"),
        path("campaigns/<int:campaign_id>/<slug:verb>/", decisions.decide, name="campaign-decide"),
        path("drafts/typed/", typed_letters.of_draft, name="draft-typed"),
        *wizard.urls(),
        *_templates(),
        *_webhooks_and_keys(),
        *_suppressions_and_senders(),
    ]


def _templates() -> list[URLPattern]:
    return [
        path("templates/", templates.index, name="templates"),
        path("templates/new/", template_editor.new, name="template-new"),
        path("templates/typed/", typed_letters.of_template, name="template-typed"),
        path("templates/<int:pk>/", templates.template, name="template"),
        path("templates/<int:pk>/versions/<int:number>/", templates.template, name="template-version"),
        path("templates/<int:pk>/edit/", template_editor.edit, name="template-edit"),
        path("templates/<int:pk>/differences/", templates.differences, name="template-differences"),
        path("templates/<int:pk>/class/", templates.set_class, name="template-class"),
        path("templates/<int:pk>/archive/", templates.archive, name="template-archive"),
        path("templates/<int:pk>/restore/", templates.restore, name="template-restore"),
    ]


def _webhooks_and_keys() -> list[URLPattern]:
    return [
        path("webhooks/", webhooks.index, name="webhooks"),
        path("webhooks/add/", webhooks.add, name="webhook-add"),
        path("webhooks/<int:pk>/", webhooks.webhook, name="webhook"),
        path("webhooks/<int:pk>/rotate/", webhooks.rotate, name="webhook-rotate"),
        path("webhooks/<int:pk>/switch/", webhooks.switch, name="webhook-switch"),
        path("webhooks/<int:pk>/remove/", webhooks.remove, name="webhook-remove"),
        path("webhooks/<int:pk>/calls/<int:call>/redeliver/", webhooks.redeliver, name="webhook-redeliver"),
        path("keys/", api_keys.index, name="keys"),
        path("keys/make/", api_keys.make, name="key-make"),
        path("keys/<int:pk>/extend/", api_keys.extend, name="key-extend"),
        path("keys/<int:pk>/revoke/", api_keys.revoke, name="key-revoke"),
    ]


def _suppressions_and_senders() -> list[URLPattern]:
    return [
        path("suppressions/", suppressions.index, name="suppressions"),
        path("suppressions/add/", suppressions.add, name="suppression-add"),
        path("suppressions/import/", suppressions.import_file, name="suppression-import"),
        path("suppressions/export/", suppressions.choose_export, name="suppression-export"),
        path("suppressions/export/file.csv", suppressions.export, name="suppression-file"),
        path("suppressions/<int:pk>/lift/", suppressions.lift, name="suppression-lift"),
        path("answers/", answers.index, name="answers"),
        path("answers/<int:pk>/<slug:verb>/", answers.decide, name="answer-decide"),
        path("senders/", identities.index, name="identities"),
        path("senders/add/<str:channel>/", identities.add, name="identity-add"),
        path("senders/<int:pk>/", identities.identity, name="identity"),
        path("senders/<int:pk>/edit/", identities.edit, name="identity-edit"),
        path("senders/<int:pk>/sign/", identities.sign, name="identity-sign"),
        path("senders/<int:pk>/switch/", identities.switch, name="identity-switch"),
        path("senders/topics/", identities.topics, name="topics"),
        path("senders/topics/<int:pk>/rename/", identities.rename_topic, name="topic-rename"),
        path("senders/topics/<int:pk>/archive/", identities.archive_topic, name="topic-archive"),
        path("senders/topics/<int:pk>/remove/", identities.remove_topic, name="topic-remove"),
    ]
