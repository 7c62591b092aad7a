"""Run by ``manage.py test``, on Django's own test databases: what a site's own tests of its jobs meet."""

import threading
from datetime import datetime, timezone

from django.db import connection
from django.test import TestCase, TransactionTestCase, override_settings

from anarchon import JobNotRegistered
from anarchon.contrib.django import scheduler
from anarchon.contrib.django.testing import call_job
from shop.models import Sale

SLOT = datetime(2026, 3, 1, 8, 0, tzinfo=timezone.utc)


class InATransaction(TestCase):
    def test_call_job_runs_the_handler_in_the_tests_own_transaction(self) -> None:
        Sale.objects.create(job="of the test")
        self.assertEqual(call_job("sell"), 2)
        self.assertEqual([sale.job for sale in Sale.objects.order_by("pk")], ["of the test", "sell"])
        self.assertIsNotNone(connection.connection)

    def test_call_job_tells_the_handler_the_slot_that_the_test_wants(self) -> None:
        call_job("sell", slot=SLOT)
        self.assertEqual(Sale.objects.get().slot, SLOT)

    def test_call_job_raises_what_the_handler_raises(self) -> None:
        with self.assertRaisesMessage(ValueError, "no such customer"):
            call_job("fail")

    def test_call_job_knows_the_jobs_that_are_registered(self) -> None:
        with self.assertRaisesMessage(JobNotRegistered, "Did you mean 'sell'?"):
            call_job("sel")

    def test_a_real_run_has_no_part_in_the_tests_transaction(self) -> None:
        record = scheduler.run_now("look")
        self.assertEqual((record.status, record.error), ("success", None))
        # Rolled back with the test, had it been a part of it: it is gone with its own connection.
        self.assertEqual(Sale.objects.count(), 0)

    @override_settings(ANARCHON={"BACKEND": "memory://", "PERMISSION": lambda request: True})
    def test_the_views_answer_the_test_client(self) -> None:
        self.assertEqual(self.client.get("/cron/jobs/sell/last").json(), scheduler.last_run("sell"))


class Committed(TransactionTestCase):
    def test_a_real_run_sees_what_the_test_has_written_and_the_test_what_the_run_has(self) -> None:
        for number in range(3):
            Sale.objects.create(job="of the test")
            record = scheduler.run_now("sell")
            self.assertEqual((record.status, record.error), ("success", None))
            self.assertEqual(Sale.objects.count(), 2 * (number + 1))

    def test_nothing_is_started_in_a_process_of_tests(self) -> None:
        self.assertNotIn("anarchon-timer", " ".join(thread.name for thread in threading.enumerate()))
