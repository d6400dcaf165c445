"""The wizard's URLs: GET shows a step, POST saves it and redirects to the next."""

from django.urls import URLPattern, path

from campaigns.lists.pages import check, drafts, message, preview, recipients, typed_letters


def urls() -> list[URLPattern]:
    one = "drafts/<int:draft_id>"
    return [
        path("campaigns/<int:campaign_id>/copy/", drafts.copy, name="campaign-copy"),
        path("drafts/typed/", typed_letters.of_draft, name="draft-typed"),
        path("templates/typed/", typed_letters.of_template, name="template-typed"),
        path("campaigns/new/", message.new, name="new_campaign"),
        path("drafts/", drafts.index, name="drafts"),
        path(f"{one}/message/", message.message, name="draft_message"),
        path(f"{one}/recipients/", recipients.recipients, name="draft_recipients"),
        path(f"{one}/list/", recipients.upload, name="draft_list"),
        path(f"{one}/columns/", recipients.columns, name="draft_columns"),
        path(f"{one}/hidden-rows/", recipients.hidden_rows, name="draft_hidden_rows"),
        path(f"{one}/leave-out/", recipients.leave_out, name="draft_leave_out"),
        path(f"{one}/check-again/", recipients.check_again, name="draft_check_again"),
        path(f"{one}/progress/", recipients.progress, name="draft_progress"),
        path(f"{one}/bad-rows.csv", recipients.bad_rows, name="draft_bad_rows"),
        path(f"{one}/preview/<int:number>/", preview.preview, name="draft_preview"),
        path(f"{one}/preview/<int:number>/letter/", preview.letter, name="draft_letter"),
        path(f"{one}/preview/<int:number>/letter.pdf", preview.letter_pdf, name="draft_letter_pdf"),
        path(f"{one}/test/", preview.test, name="draft_test"),
        path(f"{one}/check/", check.check, name="draft_check"),
        path(f"{one}/send/", check.send, name="draft_send"),
        path(f"{one}/sent/", drafts.sent, name="draft_sent"),
        path(f"{one}/delete/", drafts.delete, name="draft_delete"),
    ]
