"""A rehearsal in the form that CI services read as test results (JUnit XML).

Takes: `Rehearsal`. Gives: the XML text; the form is that of the schemas of Jenkins' xUnit plugin and of Surefire.
May touch: nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from stepflow.report.plain import clean
from stepflow.report.rehearsal import difference_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepflow.domain.rehearsal import Rehearsal, Rehearsed

#: What XML 1.0 cannot hold, not even as a reference.
NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(rehearsal: Rehearsal) -> str:
    """One suite per agent, one case per scenario."""
    root = ElementTree.Element("testsuites", _totals("stepflow rehearse", rehearsal.scenarios))
    for agent in dict.fromkeys(each.agent for each in rehearsal.scenarios):
        own = [each for each in rehearsal.scenarios if each.agent == agent]
        suite = ElementTree.SubElement(root, "testsuite", _totals(agent, own))
        for each in own:
            _add_case(suite, each)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _totals(name: str, scenarios: Sequence[Rehearsed]) -> dict[str, str]:
    return {
        "name": name,
        "tests": str(len(scenarios)),
        "failures": str(sum(not each.passed for each in scenarios)),
        "errors": "0",
        "skipped": "0",
        "time": f"{sum(each.seconds for each in scenarios):.3f}",
    }


def _add_case(suite: ElementTree.Element, rehearsed: Rehearsed) -> None:
    named = {"classname": f"stepflow.{rehearsed.agent}", "name": _text(rehearsed.name), "file": _text(rehearsed.file)}
    case = ElementTree.SubElement(suite, "testcase", {**named, "time": f"{rehearsed.seconds:.3f}"})
    if not rehearsed.passed:
        told = "not as expected: " + ", ".join(difference.what for difference in rehearsed.differences)
        failure = ElementTree.SubElement(case, "failure", {"message": _text(told), "type": rehearsed.outcome})
        failure.text = _text("\n".join(difference_lines(rehearsed)))
    if said := [*rehearsed.notes, *([rehearsed.refusal] if rehearsed.refusal else [])]:
        ElementTree.SubElement(case, "system-out").text = _text("\n".join(said))


def _text(text: str) -> str:
    return NOT_IN_XML.sub("\ufffd", clean(text))
