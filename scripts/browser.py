"""A headless Chromium, driven through its own debugging pipe: no driver program and no package is needed.

    python scripts/browser.py page.html out.png --width 400 --dark      # a picture of a page, as tall as it is
"""

import argparse
import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from typing import Any

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe"]  # fmt: skip


def program() -> str | None:
    """The browser of this machine, where there is one."""
    return next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)


class Browser:
    """One page of one size. Messages are JSON with a NUL behind each; Chromium reads descriptor 3 and writes descriptor 4."""

    def __init__(self, width: int = 1300, height: int = 900, dark: bool = False) -> None:
        self.profile = tempfile.mkdtemp()
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()
        # Descriptors 3 and 4 may be in use here; a shell moves them into place.
        start = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        command = ["bash", "-c", start, str(program()), *FLAGS, f"--user-data-dir={self.profile}", "about:blank"]
        self.process = subprocess.Popen(command, pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read), os.close(to_write)
        self.unread, self.sent, self.session = b"", 0, ""
        pages = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        self.session = self.call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)["sessionId"]
        self.call("Page.enable"), self.call("Runtime.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.to), os.close(self.back)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command and waits for its answer; an exception on the page becomes one here."""
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": params} | ({"sessionId": self.session} if self.session else {})
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.unread:
                read = os.read(self.back, 1 << 16)
                assert read, "the browser has ended"
                self.unread += read
            line, self.unread = self.unread.split(b"\0", 1)
            answer = json.loads(line)
            if answer.get("method") == "Runtime.exceptionThrown":
                details = answer["params"]["exceptionDetails"]
                raise AssertionError(details.get("exception", {}).get("description", details["text"]))
            if answer.get("id") == self.sent:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def open(self, page: pathlib.Path, fragment: str = "") -> None:
        self.call("Page.navigate", url=page.resolve().as_uri() + fragment)
        self.until("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression on the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def until(self, script: str, seconds: float = 20.0) -> Any:
        """Waits until an expression is true."""
        end = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < end, f"never became true: {script}"
            time.sleep(0.05)
        return value

    def point(self, x: float, y: float, click: bool = False) -> None:
        """Moves the mouse there, and clicks."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        if click:
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def picture(self, path: pathlib.Path, most: int = 6000) -> None:
        """The whole page as a PNG."""
        box = self.run("({ width: innerWidth, height: Math.ceil(document.documentElement.getBoundingClientRect().height) })")
        clip = {"x": 0, "y": 0, "width": box["width"], "height": min(box["height"], most), "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", help="a file; #step=120 behind it leads to that step of a replay")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--width", type=int, default=1300)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--open", action="store_true", help="unfold everything first")
    args = parser.parse_args()
    page, _, fragment = args.page.partition("#")
    with Browser(args.width, 900, args.dark) as browser:
        browser.open(pathlib.Path(page), f"#{fragment}" if fragment else "")
        if args.open:
            browser.run("document.querySelectorAll('main > details').forEach((d) => { d.open = true; })")
        time.sleep(0.5)
        browser.picture(args.out)


if __name__ == "__main__":
    main()
