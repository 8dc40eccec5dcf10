"""The pages of `meme watch` and `meme report` in a browser, while `catch` trains.

    python -m unittest discover --start-directory tests/browser

`MEME` names the program, `SCREENSHOTS` a directory for pictures of both pages.
"""

import os
import shutil
import ssl
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from webdriver import Browser, missing

MEME = os.environ.get("MEME", str(Path(__file__).resolve().parents[2] / "target/release/meme"))
SCREENSHOTS = os.environ.get("SCREENSHOTS")
DESKTOP, PHONE = (1200, 900), (390, 844)

# Elements that are wider than the page or cover each other's text.
OVERLAPS = """
const wide = document.documentElement.scrollWidth > window.innerWidth + 1;
const boxes = [...document.querySelectorAll("figure svg")].flatMap((svg) => {
  const texts = [...svg.querySelectorAll("text")].filter((text) => !text.getAttribute("transform"));
  const found = texts.map((text) => [text.textContent, text.getBoundingClientRect()]);
  return found.flatMap(([one, a], i) => found.slice(i + 1).filter(([, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 5).map(([other]) => one + " / " + other));
});
return { wide, boxes };
"""


def train(runs, *arguments):
    command = [MEME, "train", "catch", "--runs", runs, "--frames", "1G", "--set", "metrics.interval_seconds=1"]
    command += ["--set", "checkpoint.every_minutes=0.5", *arguments]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def said(process, words):
    """The rest of the line in which a process says this."""
    for line in process.stderr:
        if words in line:
            return line.split(words, 1)[1].strip()
    raise AssertionError(f"it ended without saying {words!r}")


@unittest.skipIf(missing(), f"SKIPPED: {missing()} is not installed, so no page was opened (apt-get install chromium chromium-driver)")
class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.runs = str(Path(cls.directory.name) / "runs")
        cls.training = train(cls.runs, "--watch")
        cls.url = said(cls.training, "watch the run at ").split("#")[0]
        # A pipe that nobody reads would fill up.
        cls.drain = subprocess.Popen(["cat"], stdin=cls.training.stderr, stdout=subprocess.DEVNULL)
        metrics = Path(cls.runs) / "catch-tiny-1/metrics.jsonl"
        deadline = time.monotonic() + 300
        while not metrics.exists() or metrics.read_text().count("evaluation/score") < 10:
            assert time.monotonic() < deadline and cls.training.poll() is None, "catch does not train"
            time.sleep(1)

    @classmethod
    def tearDownClass(cls):
        cls.training.terminate()
        cls.training.wait()
        cls.drain.wait()
        cls.training.stderr.close()
        cls.directory.cleanup()

    def browser(self, size=DESKTOP, dark=False):
        browser = Browser(*size, dark)
        self.addCleanup(browser.close)
        return browser

    def check_layout(self, browser):
        found = browser.run(OVERLAPS)
        self.assertFalse(found["wide"], "the page is wider than the window")
        self.assertEqual(found["boxes"], [])

    def shoot(self, browser, name):
        if SCREENSHOTS:
            Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
            browser.screenshot(Path(SCREENSHOTS) / f"{name}.png")

    def test_run_is_found_and_its_values_change_while_it_trains(self):
        browser = self.browser()
        browser.open(self.url)
        browser.wait_for("return document.querySelector('#runs tbody tr')", "the list of runs")
        self.shoot(browser, "watch-list")
        row = browser.run("return document.querySelector('#runs tbody tr').innerText")
        self.assertIn("catch-tiny-1", row)
        self.assertIn("running", row)
        curve = "return document.querySelector('#runs .curve polyline').getAttribute('points').split(' ').length"
        self.assertGreaterEqual(browser.run(curve), 10)
        browser.run("document.querySelector('#runs tbody a').click()")
        charts = "return document.querySelectorAll('#charts svg').length > 15"
        browser.wait_for(charts, "the charts of the run")
        titles = browser.run("return [...document.querySelectorAll('#charts svg text')].map((text) => text.textContent)")
        for title in ("Score", "Episodes by policy (stronger: more)", "Loss", "emulator frames", "points per episode"):
            self.assertIn(title, titles)
        frames = "return document.getElementById('fact-frames').innerText"
        first = browser.run(frames)
        browser.wait_for(f"return (document.getElementById('fact-frames').innerText !== {first!r})", "new frames")
        self.assertIn("starting run catch-tiny-1", browser.run("return document.getElementById('log').innerText"))
        self.assertIn("[env]", browser.run("return document.getElementById('config').textContent"))
        fields = browser.run("return document.querySelector('#differences').innerText")
        self.assertIn("checkpoint.every_minutes", fields)
        self.check_layout(browser)
        requested = browser.requested()
        self.assertGreater(len(requested), 5)
        elsewhere = [url for url in requested if not url.startswith(self.url)]
        self.assertEqual(elsewhere, [])
        self.shoot(browser, "watch-run")

    def test_episode_is_played_on_request(self):
        browser = self.browser()
        browser.open(self.url + "#catch-tiny-1")
        browser.wait_for("return !document.getElementById('record').disabled", "a checkpoint", 300)
        browser.run("document.getElementById('record').click()")
        loaded = "const v = document.getElementById('video'); return !v.hidden && v.naturalWidth > 100"
        browser.wait_for(loaded, "the video", 300)
        self.assertIn("The agent at", browser.run("return document.getElementById('video-text').innerText"))
        browser.run("document.getElementById('video-text').scrollIntoView()")
        self.shoot(browser, "watch-video")

    def test_pages_fit_a_phone_and_follow_the_colour_scheme(self):
        browser = self.browser(PHONE, dark=True)
        browser.open(self.url)
        browser.wait_for("return document.querySelector('#runs tbody tr')", "the list of runs")
        self.check_layout(browser)
        browser.open(self.url + "#catch-tiny-1")
        browser.wait_for("return document.querySelectorAll('#charts svg').length > 15", "the charts of the run")
        self.check_layout(browser)
        self.assertEqual(browser.run("return getComputedStyle(document.body).backgroundColor"), "rgb(21, 23, 26)")
        text = "return getComputedStyle(document.querySelector('#charts .m-text')).color"
        self.assertEqual(browser.run(text), "rgb(232, 232, 232)")
        self.shoot(browser, "watch-phone")

    def test_page_left_open_does_not_grow(self):
        browser = self.browser()
        browser.open(self.url + "#catch-tiny-1")
        browser.wait_for("return document.querySelectorAll('#charts svg').length > 15", "the charts of the run")
        browser.devtools("Performance.enable")

        def updated(times):
            """Updates the page so often, with all charts drawn again; returns its memory and what is left of old charts."""
            for _ in range(times // 20):
                browser.run("return (async () => { for (let i = 0; i < 20; i++) { version = null; await update(); } })()")
            browser.devtools("HeapProfiler.collectGarbage")
            metrics = browser.devtools("Performance.getMetrics")["metrics"]
            held = {metric["name"]: metric["value"] for metric in metrics}
            walk = "const all = document.createTreeWalker(document); let n = 1; while (all.nextNode()) n++; return n"
            return held["JSHeapUsedSize"], held["Nodes"] - browser.run(walk), held["JSEventListeners"]

        heap, detached, listeners = updated(40)
        # A week has 200 000 updates: one kilobyte per update would be 200 MB.
        updates = 20_000 if os.environ.get("MEME_TEST_ALL") else 300
        heap_after, detached_after, listeners_after = updated(updates)
        self.assertLess(heap_after - heap, 1000 * updates)
        self.assertLess(detached_after - detached, 50)
        self.assertEqual(listeners_after, listeners)

    def test_no_parameter_leads_out_of_the_runs(self):
        for path in ("run", "charts", "video"):
            for name in ("../runs/catch-tiny-1", "..%2fcatch-tiny-1", "%2Fetc%2Fpasswd", "catch-tiny-1%2F..%2F.."):
                with self.assertRaises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(f"{self.url}api/{path}?name={name}")
                self.assertEqual(refused.exception.code, 404, f"{path} {name}")
                refused.exception.close()
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{self.url}api/charts?name=catch-tiny-1&version=../run.json")
        self.assertEqual(refused.exception.code, 404)
        refused.exception.close()

    def test_other_machines_need_the_token(self):
        command = [MEME, "watch", self.runs, "--listen", "0.0.0.0:0"]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        printed = said(server, " at ")
        self.assertIn("the traffic is not encrypted", said(server, "warning: "))
        port, token = printed.rsplit(":", 1)[1].split("/?token=")
        browser = self.browser()
        page = f"http://127.0.0.1:{port}/"
        browser.open(page + "?token=wrong")
        self.assertIn("Open the address with the token", browser.run("return document.body.innerText"))
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(page + "api/runs?token=wrong")
        self.assertEqual(refused.exception.code, 401)
        refused.exception.close()
        browser.open(page + "?token=" + token)
        browser.wait_for("return document.querySelector('#runs tbody tr')", "the list of runs")
        self.assertEqual(browser.run("return location.href"), page)
        # The cookie is enough from now on.
        browser.open(page)
        browser.wait_for("return document.querySelector('#runs tbody tr')", "the list of runs")

    @unittest.skipIf(shutil.which("openssl") is None, "SKIPPED: openssl is not installed, so no certificate was made")
    def test_traffic_is_encrypted_with_a_certificate(self):
        certificate, key = (str(Path(self.directory.name) / name) for name in ("server.pem", "server.key"))
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
        make += ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate]
        subprocess.run(make, check=True, capture_output=True)
        command = [MEME, "watch", self.runs, "--listen", "0", "--certificate", certificate, "--key", key]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        url = said(server, " at ")
        self.assertTrue(url.startswith("https://127.0.0.1:"), url)
        trusted = ssl.create_default_context(cafile=certificate)
        with urllib.request.urlopen(url.replace("127.0.0.1", "localhost") + "api/runs", context=trusted) as answer:
            self.assertIn("catch-tiny-1", answer.read().decode())

    def test_report_opens_from_disk_and_fetches_nothing(self):
        out = Path(self.directory.name) / "report"
        report = [MEME, "report", "catch-tiny-1", "--runs", self.runs, "--out", str(out)]
        subprocess.run(report, check=True, stdout=subprocess.DEVNULL)
        for size, dark in ((DESKTOP, False), (PHONE, True)):
            browser = self.browser(size, dark)
            page = (out / "index.html").as_uri()
            browser.open(page)
            self.assertIn("1 run on 1 task", browser.run("return document.body.innerText"))
            self.assertEqual(browser.run("return document.querySelectorAll('#learning_curve_catch svg').length"), 1)
            self.check_layout(browser)
            self.assertEqual([url for url in browser.requested() if url != page], [])


if __name__ == "__main__":
    unittest.main()
