"""A JupyterLab of one's own, and what a person does in it."""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, expect
from servers import free_port

SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false"},
    "notebook-extension/tracker": {"windowingMode": "none"},  # every cell is on the page
    "docmanager-extension/plugin": {"autosave": False},
}
STARTS_WITHIN = 90.0
ENDS_WITHIN = 15.0

RUN_ALL = """async () => {
    const app = window.jupyterapp;
    await app.restored;
    const widget = app.shell.currentWidget;
    await widget.context.ready;
    await widget.revealed;
    await widget.sessionContext.ready;
    await widget.sessionContext.session.kernel.info;
    await app.commands.execute('notebook:run-all-cells');
}"""


@dataclass(frozen=True)
class Lab:
    """A server that runs: where it is reached, and the folder it shows."""

    url: str
    token: str
    folder: Path

    def open(self, page: Page, notebook: str) -> None:
        """Open a notebook, named relative to the folder, and wait until it is there."""
        page.goto(f"{self.url}/lab/tree/{notebook}?reset&token={self.token}")
        expect(page.locator("#jupyterlab-splash")).to_have_count(0, timeout=60_000)
        expect(page.locator(".jp-Notebook .jp-Cell").first).to_be_visible(timeout=60_000)

    def run_all(self, page: Page) -> None:
        page.evaluate(RUN_ALL)


def change_theme(page: Page, theme: str) -> None:
    command = "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})"
    page.evaluate(command, theme)
    expect(page.locator("body")).to_have_attribute("data-jp-theme-name", theme)


@contextmanager
def running_lab(folder: Path, private: Path) -> Iterator[Lab]:
    """Run JupyterLab on `folder` until the block ends; it keeps what is its own in `private`."""
    lab = Lab(f"http://127.0.0.1:{free_port()}", secrets.token_hex(16), folder)
    log = private / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            _command(lab),
            env=_environment(private),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_for(lab, server, log)
        yield lab
    finally:
        _end(server)


def _command(lab: Lab) -> list[str]:
    return [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        "--ip=127.0.0.1",
        f"--port={lab.url.rpartition(':')[2]}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={lab.token}",
        f"--ServerApp.root_dir={lab.folder}",
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.extension_manager=readonly",
        "--LabApp.news_url=",
        "--LabApp.check_for_updates_class=jupyterlab.handlers.announcements.NeverCheckForUpdate",
    ]


def _environment(private: Path) -> dict[str, str]:
    """Nothing of the user's own Jupyter is read or written."""
    settings = private / "settings"
    for name, values in SETTINGS.items():
        extension, _, plugin = name.partition("/")
        path = settings / "@jupyterlab" / extension / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    return os.environ | {
        "JUPYTER_CONFIG_DIR": str(private / "config"),
        "JUPYTER_DATA_DIR": str(private / "data"),
        "JUPYTER_RUNTIME_DIR": str(private / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "JUPYTERLAB_WORKSPACES_DIR": str(private / "workspaces"),
        "IPYTHONDIR": str(private / "ipython"),
    }


def _wait_for(lab: Lab, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < until and server.poll() is None:
        with suppress(urllib.error.URLError, OSError):
            address = f"{lab.url}/api/status?token={lab.token}"
            with urllib.request.urlopen(address, timeout=5):
                return
        time.sleep(0.2)
    raise AssertionError(f"JupyterLab did not start:\n{log.read_text(errors='replace')[-2000:]}")


def _end(server: subprocess.Popen[bytes]) -> None:
    """End the server and its kernels: they are one process session."""
    for each in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(server.pid, each)
        try:
            server.wait(ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            continue
        return
