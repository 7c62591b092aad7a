"""The admin's page and its button, as somebody sees them in a browser: a real, headless Chromium."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.handlers.wsgi import WSGIHandler
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from anarchon import Scheduler
from anarchon.records import RunRecord

#: Nothing waits so long unless something is wrong.
REAL_SECONDS = 90

LIGHT = {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
DARK = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: None) -> Iterator[str]:
    """The site, served by this process, which runs the jobs as a web worker would."""
    server = ThreadedWSGIServer(("127.0.0.1", 0), Quiet, allow_reuse_address=False)
    server.set_app(StaticFilesHandler(WSGIHandler()))
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    serving.join(REAL_SECONDS)


@pytest.fixture(scope="module")
def browser(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Closed before the server, which its open connections would otherwise outlive."""
    chromium, driver = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        assert "CI" not in os.environ, "There is no chromium, or no chromedriver, on the PATH."
        pytest.skip("needs chromium and chromedriver on the PATH")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options, webdriver.ChromeService(driver))
    started.set_page_load_timeout(REAL_SECONDS)
    yield started
    started.quit()


@pytest.fixture
def jobs(make: Callable[..., Scheduler], store: Any) -> Iterator[dict[str, Any]]:
    """Jobs in every state that they can be in; what ``slow`` waits for is ``gate``."""
    gate = threading.Event()

    def slow() -> None:
        gate.wait(REAL_SECONDS)

    def broken() -> None:
        raise ValueError("<b>no such customer</b>, and " + "a long explanation of why that is so; " * 20)

    names = ["broken", "slow", "never-run", "lost", "told-to-stop", "<script>alert(1)</script>-" + "a-long-name-" * 12]
    elsewhere = make(instance_id="worker-7.billing.example").every("reindex", "1h", slow)
    scheduler = make(instance_id="web-1-4711-a1b2c3d4", timezone="America/New_York")
    scheduler.cron("sync", "*/15 8-18 * * 1-5", lambda: None).every("reindex", "1h", slow)
    for name in names:
        scheduler.every(name, "15m", slow if name == "slow" else broken)
    for name in ("sync", "broken", names[-1]):
        for _ in range(3):
            scheduler.run_now(name)
    store.save_result("lost", record("lost", "lost", "the lease of worker-7 ended at 12:00:00"))
    store.save_result("told-to-stop", record("told-to-stop", "interrupted", "RunInterrupted: stop"))
    elsewhere.run_now("reindex", wait=0)
    yield {"scheduler": scheduler, "gate": gate}
    gate.set()


def record(job: str, status: str, error: str) -> RunRecord:
    now = datetime.now(timezone.utc)
    began = now - timedelta(seconds=90)
    return RunRecord(job, began, "1", 1, "scheduled", status, "worker-7.billing.example", 1, began, now, 90.0, error)


def log_in(browser: webdriver.Chrome, address: str) -> None:
    from django.contrib.auth.models import User

    if not User.objects.filter(username="alice").exists():
        User.objects.create_superuser("alice", password="a password of the tests")
    browser.set_window_size(1280, 1400)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", LIGHT)
    browser.delete_all_cookies()
    browser.get(f"{address}/admin/anarchon/job/")
    browser.find_element(By.NAME, "username").send_keys("alice")
    browser.find_element(By.NAME, "password").send_keys("a password of the tests")
    click(browser, By.CSS_SELECTOR, "input[type=submit]")


def click(browser: webdriver.Chrome, by: str, value: str) -> None:
    """Clicks, and waits for the page that comes of it."""
    before = browser.find_element(By.TAG_NAME, "html")
    browser.find_element(by, value).click()
    wait_for(browser, lambda: browser.find_element(By.TAG_NAME, "html") != before)
    wait_for(browser, lambda: browser.execute_script("return document.readyState") == "complete")


def wait_for(browser: webdriver.Chrome, condition: Callable[[], object]) -> None:
    WebDriverWait(browser, REAL_SECONDS, poll_frequency=0.02, ignored_exceptions=[WebDriverException]).until(
        lambda _: condition()
    )


def said(browser: webdriver.Chrome) -> str:
    return browser.find_element(By.CSS_SELECTOR, "ul.messagelist").text


def newest_of(browser: webdriver.Chrome, caption: str) -> list[str]:
    """The first row of the table with that caption, a text a cell."""
    cells = f"//table[caption[starts-with(normalize-space(), '{caption}')]]//tr[td][1]/*"
    return [cell.text for cell in browser.find_elements(By.XPATH, cells)]


def test_somebody_logs_in_sees_the_jobs_and_runs_one(
    browser: webdriver.Chrome, address: str, jobs: dict[str, Any], tmp_path: Path
) -> None:
    log_in(browser, address)
    rows = {row.find_element(By.TAG_NAME, "th").text: row for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr")}
    assert "on worker-7.billing.example" in rows["reindex"].text and "none yet" in rows["never-run"].text
    assert all(word in rows[job].text for job, word in [("lost", "lost"), ("told-to-stop", "interrupted")])
    browser.save_screenshot(str(tmp_path / "jobs.png"))

    click(browser, By.CSS_SELECTOR, "input[aria-label='Run sync now']")
    browser.save_screenshot(str(tmp_path / "confirmation.png"))
    click(browser, By.CSS_SELECTOR, "input[value='Yes, run it now']")
    assert browser.current_url == f"{address}/admin/anarchon/job/sync/change/"
    assert "Job 'sync' was run, and took" in said(browser) and "success" in said(browser)
    assert newest_of(browser, "History")[1:4] == ["1", "manual", "success"]
    assert len(jobs["scheduler"].history("sync")) == 4
    browser.save_screenshot(str(tmp_path / "job.png"))

    click(browser, By.LINK_TEXT, "WHO RAN IT BY HAND")
    assert [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "#change-history td")] == [
        "alice",
        "Asked for a run now.",
    ]
    assert complaints(browser) == []


def test_a_long_run_is_seen_to_go_on_and_to_end_and_another_is_refused_meanwhile(
    browser: webdriver.Chrome, address: str, jobs: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anarchon.contrib.django.admin.JobAdmin.wait", "500ms")
    log_in(browser, address)
    browser.get(f"{address}/admin/anarchon/job/slow/change/")
    for shot, expected in (("started", "was started on 'web-1-"), ("refused", "is already running on 'web-1-")):
        click(browser, By.CSS_SELECTOR, "input[aria-label='Run slow now']")
        click(browser, By.CSS_SELECTOR, "input[value='Yes, run it now']")
        assert expected in said(browser)
        browser.save_screenshot(str(tmp_path / f"{shot}.png"))
    assert newest_of(browser, "Running now")[4] == "web-1-4711-a1b2c3d4"
    jobs["gate"].set()
    wait_for(browser, lambda: jobs["scheduler"].active("slow") == [])
    browser.refresh()
    assert newest_of(browser, "Running now") == ["nothing"]
    assert newest_of(browser, "History")[2:4] == ["manual", "success"]
    assert complaints(browser) == []


def test_the_pages_are_readable_in_the_dark_and_on_a_telephone(
    browser: webdriver.Chrome, address: str, jobs: dict[str, Any]
) -> None:
    log_in(browser, address)
    for width in (1280, 420):
        browser.set_window_size(width, 1400)
        for media in (LIGHT, DARK):
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
            for page in ("", "broken/change/"):
                browser.get(f"{address}/admin/anarchon/job/{page}")
                assert contrast_of(browser, ".anarchon-status") >= 4.5
                # Only tables scroll sideways, in their own place.
                assert browser.execute_script("return document.documentElement.scrollWidth - innerWidth") <= 0
    assert complaints(browser) == []


def contrast_of(browser: webdriver.Chrome, selector: str) -> float:
    """The least contrast, as the WCAG reckon it, of what stands on a background of its own."""
    return browser.execute_script(
        """
        const light = (text) => {
            const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((c) => c / 255)
                .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        return Math.min(...[...document.querySelectorAll(arguments[0])].map((e) => {
            const style = getComputedStyle(e);
            const [a, b] = [light(style.color), light(style.backgroundColor)].sort((x, y) => y - x);
            return (a + 0.05) / (b + 0.05);
        }));
        """,
        selector,
    )


def complaints(browser: webdriver.Chrome) -> list[str]:
    """What the browser says of the pages: a script or style that the content policy forbids, a file that is missing."""
    return [line["message"] for line in browser.get_log("browser") if "favicon.ico" not in line["message"]]
