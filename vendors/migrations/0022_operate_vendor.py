from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("vendors", "0021_paused_rows_of_before")]

    operations = [
        migrations.AlterModelOptions(
            name="vendor",
            options={
                "ordering": ["slug"],
                "permissions": [("operate_vendor", "Can pause and resume vendors and credentials")],
            },
        ),
    ]
