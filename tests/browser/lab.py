"""A private JupyterLab, and the actions of a user in it."""

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.support.servers import PATIENCE, free_port

SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false"},
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},  # all cells on the page
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}
PRIVATE = (
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_DATA_DIR",
    "JUPYTER_RUNTIME_DIR",
    "IPYTHONDIR",
    "JUPYTERLAB_SETTINGS_DIR",
    "JUPYTERLAB_WORKSPACES_DIR",
)
"""Jupyter's user folders, which must be neither read nor written."""

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
    """A running server: its address and the folder that it serves."""

    url: str
    token: str
    folder: Path

    def open(self, page: Page, notebook: str) -> None:
        """Open a notebook, named relative to the folder, and wait until it is there."""
        page.goto(f"{self.url}/lab/tree/{notebook}?reset&token={self.token}")
        expect(page.locator("#jupyterlab-splash")).to_have_count(0)
        expect(page.locator(".jp-Notebook .jp-Cell").first).to_be_visible()

    def run_all(self, page: Page) -> None:
        page.evaluate(RUN_ALL)


def wait_until_running(server: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until the log of a server says that it answers."""
    until = time.monotonic() + PATIENCE
    while True:
        output = log.read_text(errors="replace")
        if "is running at" in output:
            return
        assert server.poll() is None, output[-2000:]
        assert time.monotonic() < until, output[-2000:]
        time.sleep(0.2)


@contextmanager
def running_lab(folder: Path, private: Path) -> Iterator[Lab]:
    """Run JupyterLab on `folder` until the block ends; its own files are in `private`."""
    lab = Lab(f"http://127.0.0.1:{free_port()}", secrets.token_hex(16), folder)
    folders = {name: str(private / name) for name in PRIVATE}
    overrides = Path(folders["JUPYTER_CONFIG_DIR"], "labconfig", "default_setting_overrides.json")
    overrides.parent.mkdir(parents=True)
    overrides.write_text(json.dumps(SETTINGS))
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={lab.url.rpartition(':')[2]}",
        "--ServerApp.port_retries=0",
        f"--ServerApp.root_dir={lab.folder}",
        f"--IdentityProvider.token={lab.token}",
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.extension_manager=readonly",
        "--LabApp.news_url=",
        "--LabApp.check_for_updates_class=jupyterlab.handlers.announcements.NeverCheckForUpdate",
    ]
    log = private / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, env=os.environ | folders, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_until_running(server, log)
        yield lab
    finally:
        server.terminate()  # which also ends its kernels
        with suppress(subprocess.TimeoutExpired):
            server.wait(15)
        server.kill()
        server.wait()
