"""Starts the launcher by its file path, so that nothing else of the installation is imported."""

import importlib
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
sys.exit(importlib.import_module("child.launcher").main())
