"""The inputs that are YAML maps of known keys."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from stepflow.domain.proof import MOST_HUNKS, HunkPolicy, ProofSettings
from stepflow.domain.words import Permission, Provider
from stepflow.run.start.input_values import (
    Count,
    Flag,
    InputMap,
    Labels,
    LeastPermission,
    Name,
    Names,
    Numbers,
    OptionalPositive,
    Positive,
    SecretMap,
    StartEvents,
    Text,
    Words,
)


class SharedLimits(InputMap):
    """The limits that a policy sets too: of money, and of how often people start runs."""

    usd: OptionalPositive = None
    """US dollars that one run may cost."""
    usd_per_issue: OptionalPositive = None
    """US dollars for all runs on one issue, summed from their comments; enforced before the run with a `read-token` of
    the account that writes, otherwise only reported."""
    usd_per_day: OptionalPositive = None
    """US dollars per day (UTC) for all runs of the repository, summed from their comments; a run begins only if this
    leaves its whole `usd`. It needs a `read-token` of the account that writes."""
    usd_per_month: OptionalPositive = None
    """US dollars per month (UTC) for all runs of the repository, as `usd-per-day` for a day."""
    runs_per_person_per_day: Count = None
    """Runs of the agent per day (UTC) that one person may start by an issue or a comment; it needs a `read-token`."""


class LimitsInput(SharedLimits):
    """What runs may use up, checked before each turn."""

    usd: Positive = 5
    """US dollars that one run may cost; the lower of this and the agent's `maxUsd` applies, and scripted turns cost
    nothing."""
    tokens: Count = None
    """Tokens of one run; needed for a model whose price is unknown."""
    iterations: Count = None
    """Step attempts of one run, instead of the agent's `maxIterations`."""
    minutes: Positive = 50
    """Minutes after which no further turn begins. A tool call or model answer in progress then has half a minute more,
    a validator five minutes; keep it ten minutes below the job's `timeout-minutes`, to leave time for the report."""
    rounds: Annotated[int, Field(ge=1)] = 3
    """Follow-ups that may push to one pull request, which ends a loop between an agent and the checks."""

    @property
    def sum_runs(self) -> bool:
        """Whether a day or a month has a limit."""
        return any((self.usd_per_day, self.usd_per_month, self.runs_per_person_per_day))

    def narrowed_to(self, most: SharedLimits) -> LimitsInput:
        """Return the lower number of each limit."""
        pairs = {name: (getattr(self, name), getattr(most, name)) for name in SharedLimits.model_fields}
        lower = {name: min((each for each in pair if each is not None), default=None) for name, pair in pairs.items()}
        return self.model_copy(update=lower)

    def of_one_run(self) -> LimitsInput:
        """Return the limits that need no other run."""
        of_several = SharedLimits.model_fields.keys() - {"usd"}
        return self.model_copy(update=dict.fromkeys(of_several))


def check_login(value: str | None) -> str | None:
    """Refuse what cannot be the login of an account."""
    # Only the logins of managed users have an underscore.
    if value is not None and not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?", value):
        raise ValueError("write the login of an account, without @")
    return value


class StartInput(InputMap):
    """What starts a run, and who may."""

    labels: Labels = ("agent:*",)
    """Labels that start an agent, one per line or as a list: `*` stands for the agent's name, and a label without `*`
    starts the agent that the input `agent` names."""
    events: StartEvents = ()
    """Events that start the agent that the input `agent` names: `issues.opened`, `issues.reopened`, `issues.assigned`,
    `pull_request.opened`, `pull_request.synchronize`, `pull_request.ready_for_review`."""
    mention: Annotated[Name, AfterValidator(check_login)] = None
    """Login of an account, without `@`: a comment that mentions it starts the agent that the input `agent` names, and
    `issues.assigned` starts it for issues assigned to it alone."""
    min_permission: LeastPermission = Permission.WRITE
    """Permission on the repository that the person who starts a run needs at least: `read`, `triage`, `write`,
    `maintain` or `admin`."""
    bots: Words = ()
    """Logins of bots that may start a run."""


class WorkloadIdentityInput(InputMap):
    """The ids of Anthropic's workload identity federation."""

    federation_rule_id: str
    organization_id: str
    service_account_id: Text = None


class ModelInput(InputMap):
    """The model, and the service that has it."""

    text_key = "name"

    name: Name = None
    """Model for steps that name none: an alias (`opus`, `sonnet`, `haiku`, `fable`) or a model id. Without it,
    agent.json's `models` or `defaultModel` decides, then `opus`."""
    provider: Provider = Provider.ANTHROPIC
    """`anthropic`, `bedrock`, `vertex` or `foundry`; `scripted` follows from `scenario`."""
    base_url: Text = None
    """Address of the model's service (https or loopback), such as a server that speaks the Anthropic API; without it,
    the provider's own."""
    workload_identity: WorkloadIdentityInput | None = None
    """Workload identity that replaces the key: a map of `federation-rule-id`, `organization-id` and
    `service-account-id`; the job then needs the permission `id-token: write`."""


class TelemetryInput(InputMap):
    """The OpenTelemetry collector to which a run is sent when it has ended."""

    endpoint: Text = None
    """Address of the collector, such as `https://collector.example.org`: OTLP over HTTP, to `/v1/traces` and
    `/v1/metrics` below it."""
    headers: SecretMap = Field(default_factory=dict)
    """Map of the headers that it requires, such as `Authorization: Bearer …`; each value counts as a secret."""
    content: Flag = False
    """`true` if the trace also contains prompts, answers, and what tools were given and returned."""


class ManyIssuesInput(InputMap):
    """The issues to take in the mode `plan`, or the folder and issue numbers to read in the mode `gather`."""

    label: str = ""
    limit: Annotated[int, Field(ge=1, le=256)] = 256
    after: Count = None
    folder: Annotated[str, Field(alias="from")] = ""
    issues: Numbers = ()
    usd_total: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class ProveInput(InputMap):
    """What proves a change. None and an empty list mean the built-in default."""

    text_key = "command"

    command: Annotated[str, Field(pattern=r"\S")]
    tests: Names = ()
    max_hunks: Count = None
    hunks: HunkPolicy = HunkPolicy.TELL
    comment: Flag = False

    @property
    def settings(self) -> ProofSettings:
        """Everything but the command, with the defaults filled in."""
        return ProofSettings(tests=self.tests, most_hunks=self.max_hunks or MOST_HUNKS, hunks=self.hunks)
