import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0037_draft_tests")]

    operations = [
        migrations.AddField(
            "draft",
            "template_version",
            models.ForeignKey(
                db_index=False,
                help_text="With which its message began",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="campaigns.templateversion",
            ),
        ),
        migrations.AddField(
            "draft",
            "headers",
            models.JSONField(help_text="Further headers of its template", null=True),
        ),
    ]
