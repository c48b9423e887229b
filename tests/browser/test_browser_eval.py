"""The page of an eval in a real Chromium: it fits, and says nothing that cannot be read by everybody."""

from __future__ import annotations

from pathlib import Path

import pytest
from accessible import violations
from conftest import Open

from stepflow.report.many_runs import evaluation_html
from tests.cli.test_cli_eval import evaluation_of

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page_of_an_eval_fits_and_is_accessible(open_page: Open, npm: Path, width: int, scheme: str) -> None:
    results = [(True, True), (False, True), (True, False), (False, False)] * 3
    opened = open_page(
        evaluation_html(evaluation_of(results, "</td><script>alert(1)</script> " * 9)), width=width, scheme=scheme
    )
    opened.picture(f"eval-{width}-{scheme}", whole=True)
    assert (opened.said, opened.foreign) == ([], [])
    wide = opened.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide == 0
    assert violations(opened.page, npm) == []
