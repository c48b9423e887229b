"""Starts the toolbox program by its file path, so that nothing else of the installation is imported.

Takes: nothing. Gives: the exit status of `inner.supervisor`.
May touch: sys.path, at whose end it puts the folder that holds `inner`.
"""

import importlib
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
sys.exit(importlib.import_module("inner.supervisor").main())
