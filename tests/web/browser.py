"""A real Chromium, told what to do over its debugging pipe: pages at the width of a desk or of a phone, keys, pictures."""

import base64
import json
import os
import subprocess
import time
from contextlib import contextmanager

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Browser:
    """One page of a browser."""

    def __init__(self, to_browser, from_browser):
        self._to, self._from, self._last, self._session = to_browser, from_browser, 0, None
        self._read = b""
        self.said = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method, **params):
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self):
        while b"\0" not in self._read:
            part = os.read(self._from, 1 << 16)
            assert part, "the browser is gone"
            self._read += part
        text, _, self._read = self._read.partition(b"\0")
        answer = json.loads(text)
        if answer.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            self.said.append(answer["params"])
        return answer

    def screen(self, width, height, *, dark=False, phone=False):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=features)

    def open(self, address):
        self.ask("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, script):
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, script, timeout_s=20.0):
        end = time.monotonic() + timeout_s
        while not self.evaluate(script):
            assert time.monotonic() < end, f"never came true: {script}"
            time.sleep(0.02)

    def press(self, key, code=None, text=None):
        params = {"key": key, "code": code or key, **({"text": text} if text else {})}
        codes = {"Tab": 9, "Enter": 13, " ": 32}
        if key in codes:
            params["windowsVirtualKeyCode"] = codes[key]
        self.ask("Input.dispatchKeyEvent", type="keyDown", **params)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **params)

    def picture(self, *, whole=True):
        found = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(found["data"])


@contextmanager
def browser(chromium_bin, profile):
    """Start a browser, and end it."""
    browser_reads, we_write = os.pipe()
    we_read, browser_writes = os.pipe()

    # the browser reads from descriptor 3 and writes to 4; what these numbers were before is not needed in its process
    def wire():
        reads, writes = os.dup(browser_reads), os.dup(browser_writes)
        os.dup2(reads, 3)
        os.dup2(writes, 4)

    process = subprocess.Popen(
        [chromium_bin, *FLAGS, f"--user-data-dir={profile}"],
        preexec_fn=wire,
        close_fds=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(browser_reads)
    os.close(browser_writes)
    try:
        yield Browser(we_write, we_read)
    finally:
        process.terminate()
        process.wait(20)
        os.close(we_write)
        os.close(we_read)
