"""What every peer is given: the address of the model, the task as plain data, and a shell in the checkout."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

URL, FOLDER = sys.argv[1], Path(sys.argv[2])
KEY = "sk-ant-bench"
TASK = json.loads((FOLDER / "task.json").read_text())


def run_shell(command: str) -> str:
    """Runs a command in a shell in the repository root and gives its output."""
    words = ["bash", "-c", command]
    return subprocess.run(words, cwd=FOLDER / "checkout", capture_output=True, text=True, check=False).stdout
