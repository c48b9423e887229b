"""What a job sees of a run: its log, its summary, and the outputs, always all of them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TextIO

from stepflow.domain.effect import EffectKind, EffectStatus, Receipt
from stepflow.domain.json import compact
from stepflow.domain.report import RunReport
from stepflow.domain.secrets import Redactor
from stepflow.domain.text import cut
from stepflow.report.diagnostic import annotation

#: The names in the order of docs/reference.md. A test holds `action.yml` to them.
OUTPUTS = (
    "outcome",
    "success",
    "reason",
    "iterations",
    "validated",
    "agent",
    "issue",
    "final-step",
    "verdict",
    "branch",
    "commit",
    "pull-request",
    "pull-request-url",
    "comment-url",
    "tokens-in",
    "tokens-out",
    "cost-usd",
    "duration-seconds",
    "run-folder",
    "report",
    "structured-output",
    "plan",
    "plan-issues",
    "plan-next",
    "gathered",
)

#: What only the modes of many issues set.
MANY = ("plan", "plan-issues", "plan-next", "gathered")

#: An effect that was already as planned has its result too.
DONE = (EffectStatus.APPLIED, EffectStatus.SKIPPED)

#: A job's outputs may hold 1 MiB in all: longer words of the model are cut, in characters, and a longer structured
#: output in bytes; the report has all of it.
TEXT_CAP = 4000
STRUCTURED_OUTPUT_CAP = 64 * 1024
_CUT = "…"


def outputs_of(report: RunReport) -> dict[str, str]:
    """Every output as text; what a run did not get to is empty, a figure 0, a flag false."""
    push = _applied(report, EffectKind.PUSH_BRANCH)
    pull = _applied(report, EffectKind.OPEN_PULL_REQUEST)
    comment = _applied(report, EffectKind.POST_COMMENT)
    follow_up = report.follow_up
    number, address = (follow_up.pull_request, follow_up.url) if follow_up else (None, "")
    number, address = (pull.number, pull.url) if pull else (number, address)
    folder, failure = report.host_run_folder or report.run_folder, report.failure_report or ""
    return {
        "outcome": report.outcome,
        "success": _flag(report.success),
        "reason": cut(report.reason, TEXT_CAP),
        "iterations": str(report.iterations),
        "validated": _flag(report.validated),
        "agent": report.agent,
        "issue": str(report.issue or ""),
        "final-step": report.final_step_id,
        "verdict": cut(report.verdict or "", TEXT_CAP),
        "branch": push.branch if push else report.kept_branch,
        "commit": push.commit if push else report.kept_commit,
        "pull-request": str(number or ""),
        "pull-request-url": address,
        # A failure that could not be reported on the issue has a sentence in the place of the comment's address.
        "comment-url": comment.url if comment else failure if failure.startswith("http") else "",
        "tokens-in": str(report.usage.tokens_in),
        "tokens-out": str(report.usage.output_tokens),
        "cost-usd": "" if report.cost_usd is None else f"{report.cost_usd:.6f}",
        "duration-seconds": f"{report.seconds:.1f}",
        "run-folder": folder,
        "report": f"{folder}/report.json" if folder else "",
        "structured-output": _structured(report),
        **dict.fromkeys(MANY, ""),
    }


def output_file_text(outputs: Mapping[str, str]) -> str:
    """The lines for GITHUB_OUTPUT. Each delimiter is random and checked against its value."""
    return "".join(_heredoc(name, value) for name, value in outputs.items())


def _heredoc(name: str, value: str) -> str:
    delimiter = f"end-{secrets.token_hex(16)}"
    while delimiter in value:
        delimiter = f"end-{secrets.token_hex(16)}"
    return f"{name}<<{delimiter}\n{value}\n{delimiter}\n"


def _applied(report: RunReport, kind: EffectKind) -> Receipt | None:
    done = (receipt for receipt in report.effects if receipt.kind is kind and receipt.status in DONE)
    return next(done, None)


def _structured(report: RunReport) -> str:
    text = "" if report.structured_output is None else compact(report.structured_output)
    data = text.encode(errors="backslashreplace")
    if len(data) <= STRUCTURED_OUTPUT_CAP:
        return text
    return data[: STRUCTURED_OUTPUT_CAP - len(_CUT.encode())].decode(errors="ignore") + _CUT


def _flag(value: bool) -> str:
    return "true" if value else "false"


class Job:
    """Where a job reads what happened; no secret that it knows of gets through.

    The two files may be missing, as under a local runner; one that cannot be written is only a warning.
    """

    def __init__(self, environ: Mapping[str, str], stdout: TextIO) -> None:
        self._stdout = stdout
        self._redact = Redactor()
        self._outputs = environ.get("GITHUB_OUTPUT")
        self._summary = environ.get("GITHUB_STEP_SUMMARY")

    def say(self, *lines: str) -> None:
        """Print lines to the job log, at once."""
        self._print(map(self._redact, lines))

    def mask(self, secrets: Iterable[str]) -> None:
        """Let the runner replace these values in its log, line by line as it knows them, and replace them here too."""
        known = tuple(secrets)
        lines = (line.replace("%", "%25") for secret in known for line in secret.splitlines() if line.strip())
        self._print(f"::add-mask::{line}" for line in lines)
        self._redact = self._redact.knowing(*known)

    def write_outputs(self, outputs: Mapping[str, str]) -> None:
        """Set the action's outputs."""
        redacted = {name: self._redact(value) for name, value in outputs.items()}
        self._append("GITHUB_OUTPUT", self._outputs, output_file_text(redacted))

    def write_summary(self, text: str) -> None:
        """Add to the job summary."""
        self._append("GITHUB_STEP_SUMMARY", self._summary, self._redact(text).rstrip() + "\n")

    def _print(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._stdout.write(line + "\n")
        self._stdout.flush()

    def _append(self, name: str, path: str | None, text: str) -> None:
        if not path:
            return
        try:
            with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except OSError as exc:
            self.say(annotation("warning", f"{name} names {path}, which cannot be written: {exc.strerror}."))
