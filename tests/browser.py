"""A headless Chromium for tests of pages, driven by chromedriver's HTTP interface (W3C WebDriver)."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--allow-file-access-from-files",
    "--hide-scrollbars",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Browser:
    """One session of one browser."""

    session: str

    def open(self, path: Path, /) -> None:
        """Load a file; forget what earlier pages logged."""
        self._logged("browser")
        self._logged("performance")
        self._post("url", url=path.resolve().as_uri())

    def run(self, script: str, /, *arguments: object) -> Any:
        """Run a function body in the page and give its result."""
        return self._post("execute/sync", script=script, args=list(arguments))

    def console(self) -> list[str]:
        """What the page logged since it was opened: errors, warnings and refused loads."""
        return [f"{entry['level']}: {entry['message']}" for entry in self._logged("browser")]

    def requests(self) -> list[str]:
        """Addresses that were asked for since the page was opened."""
        messages = [json.loads(entry["message"])["message"] for entry in self._logged("performance")]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def command(self, method: str, /, **parameters: object) -> Any:
        """A command of the DevTools protocol."""
        return self._post("goog/cdp/execute", cmd=method, params=parameters)

    def resize(self, *, width: int, height: int) -> None:
        """Lay the page out for a screen of this size."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def theme(self, name: str, /) -> None:
        """Prefer light or dark."""
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def key(self, key: str, /) -> None:
        """Press and release a key."""
        actions = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self._post("actions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def point(self, x: float, y: float, /) -> None:
        """Move the mouse to a place in the window."""
        move = {"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}
        self._post("actions", actions=[{"type": "pointer", "id": "mouse", "actions": [move]}])

    def drag(self, start: tuple[float, float], end: tuple[float, float], /) -> None:
        """Press at one place, move to another and let go."""
        steps = [
            {"type": "pointerMove", "duration": 0, "x": round(start[0]), "y": round(start[1])},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerMove", "duration": 50, "x": round(end[0]), "y": round(end[1])},
            {"type": "pointerUp", "button": 0},
        ]
        self._post("actions", actions=[{"type": "pointer", "id": "mouse", "actions": steps}])

    def frame(self) -> None:
        """Wait until the page has drawn what it was asked to."""
        self._post(
            "execute/async",
            script="const [done] = arguments; requestAnimationFrame(() => requestAnimationFrame(done));",
            args=[],
        )

    def screenshot(self, path: Path, /, *, whole: bool = True) -> None:
        """A picture of the page, or of its first screen."""
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        extra = {"clip": {**size, "x": 0, "y": 0, "scale": 1}, "captureBeyondViewport": True} if whole else {}
        picture = self.command("Page.captureScreenshot", format="png", **extra)
        path.write_bytes(base64.b64decode(picture["data"]))

    def _logged(self, kind: str) -> list[dict[str, str]]:
        entries: list[dict[str, str]] = self._post("se/log", type=kind)
        return entries

    def _post(self, command: str, **parameters: object) -> Any:
        return _request(f"{self.session}/{command}", parameters)


@contextlib.contextmanager
def browser(profile: Path, /) -> Iterator[Browser]:
    """A fresh browser whose profile lives in this empty folder; skips the test where there is none."""
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium") or shutil.which("google-chrome")
    if driver is None or chromium is None:
        pytest.skip("chromedriver is not installed" if driver is None else "Chromium is not installed")
    process = subprocess.Popen(
        [driver, "--port=0", "--log-level=SEVERE"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        address = f"http://127.0.0.1:{_port(process)}"
        session = f"{address}/session/{_start(address, chromium, profile)}"
        try:
            yield Browser(session=session)
        finally:
            _request(session, None, method="DELETE")
    finally:
        process.terminate()
        process.wait(timeout=20)
        assert process.stdout is not None
        process.stdout.close()


def _port(process: subprocess.Popen[str]) -> int:
    """The port that chromedriver says it chose."""
    assert process.stdout is not None
    for line in process.stdout:
        if "started successfully on port" in line:
            return int(line.rsplit(" ", 1)[1].rstrip(".\n"))
    pytest.fail("chromedriver did not start")


def _start(address: str, chromium: str, profile: Path) -> str:
    options = {"binary": chromium, "args": [*_FLAGS, f"--user-data-dir={profile}"]}
    capabilities = {
        "browserName": "chrome",
        "goog:chromeOptions": options,
        "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
    }
    created = _request(f"{address}/session", {"capabilities": {"alwaysMatch": capabilities}})
    return str(created["sessionId"])


def _request(address: str, document: dict[str, Any] | None, *, method: str = "POST") -> Any:
    """One call, answered with its value; a busy machine may need a second try to connect."""
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(
        address, data=body, method=method, headers={"Content-Type": "application/json"}
    )
    for attempt in range(50):
        try:
            with _OPENER.open(request, timeout=120) as response:
                return json.loads(response.read())["value"]
        except urllib.error.HTTPError as error:
            pytest.fail(f"{method} {address}: {error.read().decode()[:2000]}")
        except ConnectionRefusedError:
            if attempt == 49:
                raise
            time.sleep(0.1)
    raise AssertionError


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""The driver is on this machine: no proxy that the environment names may come between."""
