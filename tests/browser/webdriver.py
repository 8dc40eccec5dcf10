"""Headless Chromium through chromedriver: just what the tests need, with nothing but the standard library."""

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars")


def missing():
    """What is not installed, or None."""
    return next((name for name in ("chromium", "chromedriver") if shutil.which(name) is None), None)


class Browser:
    """A browser with a new profile. Records the address of everything that it requests."""

    def __init__(self, width=1200, height=900, dark=False):
        self.profile = tempfile.TemporaryDirectory()
        self.driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        line = next(line for line in self.driver.stdout if "successfully on port" in line)
        self.address = "http://127.0.0.1:" + line.rstrip(".\n").rsplit(" ", 1)[1]
        flags = [*FLAGS, f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}"]
        chrome = {"binary": shutil.which("chromium"), "args": flags}
        if width < 600:
            metrics = {"width": width, "height": height, "pixelRatio": 1.0, "mobile": True}
            chrome["mobileEmulation"] = {"deviceMetrics": metrics}
        always = {"goog:chromeOptions": chrome, "goog:loggingPrefs": {"performance": "ALL"}}
        session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": always}})
        self.session = "/session/" + session["sessionId"]
        if dark:
            self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def devtools(self, command, **parameters):
        return self.call("POST", self.session + "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, url):
        self.call("POST", self.session + "/url", {"url": url})

    def run(self, script, *arguments):
        return self.call("POST", self.session + "/execute/sync", {"script": script, "args": list(arguments)})

    def wait_for(self, script, what, seconds=120):
        """Waits until a script returns something true, and returns it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := self.run(script):
                return found
            time.sleep(0.3)
        raise AssertionError(f"waited {seconds} s for {what}")

    def requested(self):
        """The addresses of everything that was requested since the last call, without what is built into the browser."""
        entries = self.call("POST", self.session + "/se/log", {"type": "performance"})
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        sent = [message for message in messages if message["method"] == "Network.requestWillBeSent"]
        addresses = [message["params"]["request"]["url"] for message in sent]
        return [address for address in addresses if not address.startswith(("chrome", "data:", "about:", "blob:"))]

    def screenshot(self, path):
        shot = self.call("GET", self.session + "/screenshot")
        Path(path).write_bytes(base64.b64decode(shot))

    def close(self):
        try:
            self.call("DELETE", self.session)
        finally:
            self.driver.terminate()
            self.driver.wait()
            self.driver.stdout.close()
            self.profile.cleanup()
