"""The tables of invoices and totals."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    operations = [
        migrations.CreateModel(
            name="Invoice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("customer", models.CharField(max_length=100)),
                ("cents", models.PositiveIntegerField()),
                ("mailed_by", models.CharField(blank=True, editable=False, max_length=200)),
            ],
        ),
        migrations.CreateModel(
            name="Total",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("slot", models.DateTimeField(db_index=True)),
                ("invoices", models.PositiveIntegerField()),
                ("counted_by", models.CharField(max_length=200)),
            ],
        ),
    ]
