"""A headless Chromium on the page: what a person would do, what the page asked for, and how long its frames took."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 60.0


class Browser:
    """One window on one page."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str, *, width: int = 1440, height: int = 1000) -> None:
        self.driver.get("about:blank")
        self.complaints()  # of the page before, which may have asked a server that had ended
        self.size(width, height)
        self.driver.get(url)

    def size(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def run(self, script: str, *given: Any) -> Any:
        return self.driver.execute_script(script, *given)

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector))

    def wait(self, what: str, seen: Callable[[], Any]) -> Any:
        """Until `seen` gives something; the page is asked again and again, as it changes by itself."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if found := seen():
                return found
            time.sleep(0.1)
        raise AssertionError(f"the page never showed {what}; it says: {self.text('body')[:500]}")

    def click(self, selector: str) -> None:
        self.driver.find_element("css selector", selector).click()

    def press(self, selector: str, x: int, y: int) -> None:
        """The mouse button, so far from an element's upper left corner."""
        script = """const found = document.querySelector(arguments[0]);
            found.scrollIntoView({block: 'center'});
            const box = found.getBoundingClientRect();
            return [box.left, box.top]"""
        left, top = self.run(script, selector)
        at = {"x": left + x, "y": top + y, "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, **at})

    def type(self, selector: str, text: str) -> None:
        box = self.driver.find_element("css selector", selector)
        box.clear()
        box.send_keys(text)

    def save(self, path: Path) -> None:
        self.driver.save_screenshot(str(path))

    def complaints(self) -> list[str]:
        """What the console says: errors of scripts, and everything the content policy has stopped."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def hosts(self) -> set[str]:
        """Whom the page has asked for anything, by the browser's own record of its network."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        # pages of the browser's own, as the one it starts with, ask nobody
        return {str(urlsplit(url).hostname) for url in urls if urlsplit(url).scheme not in ("chrome", "data")}

    def frames(self, action: str) -> list[float]:
        """Milliseconds between frames while a script runs; it is called with the number of each frame."""
        script = """
            const done = arguments[arguments.length - 1], act = new Function("n", arguments[0]), gaps = [];
            let before = null, n = 0;
            const frame = (now) => {
              if (before != null) gaps.push(now - before);
              before = now;
              if (n >= 60) return done(gaps);
              act(n++);
              requestAnimationFrame(frame);
            };
            requestAnimationFrame(frame);
        """
        self.driver.set_script_timeout(PATIENCE)
        return [float(gap) for gap in self.driver.execute_async_script(script, action)]


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A fresh browser; the test is skipped where there is none."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no chromium and chromedriver on PATH; `make browser` installs them")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield Browser(started)
    finally:
        started.quit()
