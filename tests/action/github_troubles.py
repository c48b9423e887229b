"""What GitHub can do wrong at one request, and what a run leaves on GitHub, without what differs from run to run."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from typing import Any

from tests.checkout import Invocation

HTML = "<html><body>502 Bad Gateway, says the proxy</body></html>"
FOR_GOOD = 999
DAY = 86_400


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What GitHub does at one effect's write; `passes`: the run completes all the same. `says`: words of the reason."""

    fault: dict[str, Any]
    passes: bool
    says: str = ""
    not_for_git: bool = False
    reset_in: float = 0.0

    def given(self) -> dict[str, Any]:
        """The fault with the times that count from now."""
        if not self.reset_in:
            return dict(self.fault)
        headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{time.time() + self.reset_in:.0f}"}
        return {**self.fault, "headers": headers}


def passing(**fault: Any) -> Trouble:
    return Trouble(fault=fault, passes=True)


def lasting(says: str, **fault: Any) -> Trouble:
    return Trouble(fault={"times": FOR_GOOD, **fault}, passes=False, says=says)


SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
TROUBLES = {
    "503 once": passing(status=503),
    "500 after the write": passing(status=500, after_write=True),
    "429 retry-after 30": passing(status=429, headers={"retry-after": "30"}),
    "403 secondary limit": Trouble(fault={"status": 403, "message": SECONDARY}, passes=True, not_for_git=True),
    "403 limit for 90 s": Trouble(fault={"status": 403}, passes=True, not_for_git=True, reset_in=90),
    "lost before the write": passing(status=0),
    "lost after the write": passing(status=0, after_write=True),
    "HTML 502 of a proxy": passing(status=502, content=HTML),
    "HTML 200 of a proxy": Trouble(fault={"status": 200, "content": HTML}, passes=True, not_for_git=True),
    "HTML 200 after it": Trouble(
        fault={"status": 200, "content": HTML, "after_write": True}, passes=True, not_for_git=True
    ),
    "read timeout": Trouble(fault={"status": 0, "stall": 2.0}, passes=True, not_for_git=True),
    "timeout after it": Trouble(fault={"status": 0, "stall": 2.0, "after_write": True}, passes=True, not_for_git=True),
    "500 for good": lasting("githubstatus.com", status=500),
    "dead network": lasting("githubstatus.com", status=0),
    "limit until tomorrow": Trouble(
        fault={"status": 403, "times": FOR_GOOD},
        passes=False,
        says="The limit is lifted at 20",
        not_for_git=True,
        reset_in=DAY,
    ),
    "401": lasting("check `github-token`", status=401),
    "403": lasting("write", status=403),
    "404": lasting("may not see it", status=404),
    "410": Trouble(fault={"status": 410, "times": FOR_GOOD}, passes=False, says="was deleted", not_for_git=True),
    "422": Trouble(fault={"status": 422, "times": FOR_GOOD}, passes=False, says="rejected the write", not_for_git=True),
}


def plain(text: str) -> str:
    text = re.sub(r"1001-1-[0-9a-f]{6}", "RUN", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "HOST", text)
    text = re.sub(r"cost=\S+ before=\S+ day=\S+ runs=\d+ today=\S+ month=\S+ runs=\d+ spent=\S+", "cost=USD", text)
    text = re.sub(r"history=\S+", "history=RUNS", text)
    text = re.sub(r"[\d,]+ tokens · \$[\d.]+ · [\d.,]+ (?:s|min)\b", "FIGURES", text)
    text = re.sub(r"text=[0-9a-f]{16}", "text=DIGEST", text)
    return re.sub(r"commit=[0-9a-f]{40}", "commit=SHA", text)


def effects(done: Invocation) -> dict[str, str]:
    """Kind → status, as effects.json has them."""
    recorded = json.loads((done.folder / "effects.json").read_text())["effects"]
    return {effect["kind"]: effect["status"] for effect in recorded}
