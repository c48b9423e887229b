"""Every layout on which `stepflow init` is tried."""

from tests.e2e.layouts.languages import LANGUAGES
from tests.e2e.layouts.node import NODE
from tests.e2e.layouts.python import PYTHON
from tests.e2e.layouts.python_more import PYTHON_MORE
from tests.e2e.layouts.runners import RUNNERS

LAYOUTS = (*PYTHON, *PYTHON_MORE, *NODE, *RUNNERS, *LANGUAGES)
