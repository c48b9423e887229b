"""What axe-core finds in a page."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

SERIOUS = ("serious", "critical")


def violations(page: Page, packages: Path) -> list[str]:
    """Serious and critical ones, each with the first element it was found at."""
    page.evaluate((packages / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
    reported = page.evaluate("async () => (await axe.run(document, {resultTypes: ['violations']})).violations")
    return [
        f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]} {one['nodes'][0]['failureSummary'][:300]}"
        for one in reported
        if one["impact"] in SERIOUS
    ]
