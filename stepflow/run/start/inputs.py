"""The inputs of the action and the options of the command line, read once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import ErrorDetails

from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.json import JsonObject
from stepflow.domain.run import Limits
from stepflow.domain.text import Spent
from stepflow.domain.value_errors import describe_error
from stepflow.domain.words import (
    Allowance,
    BaseChecks,
    Commits,
    Isolation,
    Network,
    OnFailure,
    Progress,
    Provider,
    StructuredOutput,
)
from stepflow.errors import InputError
from stepflow.run.start.input_maps import (
    LimitsInput,
    ManyIssuesInput,
    ModelInput,
    ProveInput,
    StartInput,
    TelemetryInput,
)
from stepflow.run.start.input_values import (
    Allowances,
    Flag,
    InputMap,
    IssueNumber,
    Lines,
    Map,
    Name,
    NetworkAccess,
    NetworkInput,
    Secret,
    SecretMap,
    Text,
    Words,
    in_dashes,
    known_keys,
    parse_yaml_map,
    secret_parts,
)
from stepflow.run.start.policy import VARIABLE, Policy


class Mode(StrEnum):
    """What the action does."""

    RUN = "run"
    VALIDATE = "validate"
    REHEARSE = "rehearse"
    PREFLIGHT = "preflight"
    PLAN = "plan"
    GATHER = "gather"
    PROVE = "prove"


#: Values of the input `resume` that are no path.
AUTO, NEVER = "auto", "never"


class BoundaryMode(StrEnum):
    """Whether the boundary writes or only plans."""

    GITHUB = "github"
    DRY_RUN = "dry-run"


#: The keys of `many-issues` in each of its modes; the first one is required.
MANY_ISSUES = {
    Mode.PLAN: ("label", "limit", "after", "usd-total"),
    Mode.GATHER: ("from", "issues", "usd-total"),
}


def check_keys_of_mode(value: ManyIssuesInput, info: ValidationInfo) -> ManyIssuesInput:
    """Check that the map has what the mode needs, and nothing that belongs to another mode."""
    map_ = value.model_dump(by_alias=True, exclude_unset=True)
    known = next((keys for mode, keys in MANY_ISSUES.items() if mode is info.data.get("mode")), ())
    for mode, keys in MANY_ISSUES.items():
        if info.data.get("mode") is not mode:
            if others := [key for key in keys if key in map_ and key not in known]:
                raise ValueError(f"`{others[0]}` is for the mode {mode}")
        elif not map_.get(keys[0]):
            raise ValueError(f"the mode {mode} needs `{keys[0]}: …` in it")
    return value


def check_workflow_name(value: str | None) -> str | None:
    """Refuse what cannot be a file in `.github/workflows`."""
    if value is not None and not re.fullmatch(r"[\w. -]+\.ya?ml", value):
        raise ValueError("write the name of a file in .github/workflows, such as ci.yml")
    return value


class Inputs(BaseModel):
    """The action's inputs. None means not set: `agent.json` or the built-in default decides."""

    model_config = ConfigDict(
        # Built when the first inputs are read: `--help` of a command only looks at the names.
        defer_build=True,
        frozen=True,
        extra="forbid",
        alias_generator=in_dashes,
        populate_by_name=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    # what most people need
    agent: Name = None
    """Name of the agent: a folder under `.agent/`, or `builtin/fix`, `builtin/review` or `builtin/triage` for a shipped
    one; needed where neither a label nor a comment names one. In the modes `validate` and `rehearse` empty means all
    agents."""
    checks: Lines = ()
    """Shell commands that must pass before the work of a `builtin/` agent is done, one per line; an agent defined in
    the repository has its own validators."""
    setup: Lines = ()
    """Shell commands that run once in the sandbox before the agent, such as installing the project's dependencies;
    programs that they put into `~/.local/bin` are on the PATH."""
    anthropic_api_key: Secret = None
    """API key for the Anthropic API; not needed with a workload identity or another provider."""
    github_token: Secret = None
    """Token for the boundary, which writes after a completed run; no step, tool or validator can reach it. It is used
    for nothing else, unless you ask for that with `on-failure` or `progress`, or the agent with an `approval`."""
    read_token: Secret = None
    """Token that only reads. With it, the actor's write access is checked before a model token is spent, the issue's
    comments join the context, and the model sees images that are attached to them or to the issue. Without it, the
    event itself must show the write access."""
    limits: LimitsInput = LimitsInput()
    """What runs may use up at most, as a YAML map with one `key: number` per line: `usd`, `tokens`, `iterations` and
    `minutes` of one run, `rounds` of follow-ups, and for several runs `usd-per-issue`, `usd-per-day`, `usd-per-month`
    and `runs-per-person-per-day`."""
    # what runs
    start: StartInput = StartInput()
    """What starts a run and who may, as a YAML map: `labels` (`agent:*`, where `*` stands for the agent's name),
    `events` such as `issues.opened`, `mention` of a login, `min-permission` of the person (`write`), and the logins of
    `bots`."""
    issue: IssueNumber = None
    """Number of the issue, for events that carry none."""
    issue_text: Text = None
    """Text of the issue, for events that carry none; it is then not fetched."""
    parameters: Map = Field(default_factory=dict)
    """YAML map of values for the parameters that agent.json declares."""
    mode: Mode = Mode.RUN
    """`run` runs an agent, `validate` checks the definitions, `rehearse` plays the agents' scenarios against their
    expectations, `preflight` finds what would stop a run, before a token is spent; `prove` shows whether the tests
    of a change test it; `plan` and `gather` are the first and the last job of `many-issues.yml`."""
    # model
    model: ModelInput = ModelInput()
    """Model for steps that name none: an alias (`opus`, `sonnet`, `haiku`, `fable`) or a model id; or a YAML map of
    `name`, `provider` (`anthropic`, `bedrock`, `vertex` or `foundry`), `base-url` and `workload-identity`."""
    scenario: Text = None
    """Scenario file, relative to the repository, that answers instead of a model."""
    # GitHub
    boundary: BoundaryMode = BoundaryMode.GITHUB
    """`github` writes what the run planned, `dry-run` only shows it and needs no token."""
    commits: Commits = Commits.GIT
    """`git` pushes the run's commits, `verified` has GitHub write and sign them; merges, submodules, symlinks and
    executable files are then refused."""
    on_failure: OnFailure = OnFailure.NOTHING
    """What a run that did not complete leaves behind: `nothing`; `comment` says on the issue why and how to continue;
    `push-branch` also keeps the work on its own branch, without a pull request."""
    progress: Progress = Progress.NOTHING
    """What shows the run's progress while it runs: `nothing`, or `comment`, the run's comment on the issue, with steps,
    checks, cost and time, updated at most every 30 seconds."""
    ci_workflow: Annotated[Text, AfterValidator(check_workflow_name)] = None
    """Workflow to start, by `workflow_dispatch`, on each branch that a completed run pushes, such as `ci.yml`; the job
    then needs the permission `actions: write`."""
    policy: Policy | None = None
    """Policy of the organization or repository, for which there is the variable STEPFLOW_POLICY: a YAML map of what
    runs may do at most, with `enabled`, `agents`, `models`, `network`, `limits` and `start`. It narrows the other
    inputs and never widens one."""
    # sandbox
    isolation: Isolation = Isolation.REQUIRED
    """`required` refuses to run when a layer of the sandbox is missing, `best-effort` warns and continues: without
    Landlock, tools can then read the checkout and a login in its `.git/config`."""
    network: NetworkInput = NetworkAccess()
    """What tools, validators and `setup` can reach: `full` everything, `none` nothing, or only these hosts, which the
    kernel enforces or the run is refused: `example.org`, `*.example.org` for every name below it, `example.org:8443`
    for a port other than 443 and 80, and `pypi`, `npm` or `debian` for the hosts of these package registries, separated
    by commas or blanks. By default `full`, and `none` in the mode `prove`, which runs what anybody wrote. `network` in
    agent.json can only narrow it. `apt-packages` are installed before, by the action itself."""
    apt_packages: Words = ()
    """Space-separated Debian packages to install in the container before the run."""
    pass_env: Words = ()
    """Comma-separated names of environment variables that tools and validators may see; never a secret."""
    mcp_secrets: SecretMap = Field(default_factory=dict)
    """YAML map of the secrets that headers of remote MCP servers refer to as `${NAME}`; the sandbox sees none."""
    allow: Allowances = ()
    """What needs explicit permission, comma-separated: `spec-violations` lets steps fall back to an intent when an
    answer has none (`failFast` false in a gate; for debugging)."""
    # run
    base_checks: BaseChecks = BaseChecks.TELL
    """What to do when validators fail before the first call of the model: `tell` reports them to the model and to
    people, `require` ends the run as `base_failed`, `skip` does not run them. Unless they are skipped, a validator
    whose program is missing ends the run."""
    working_directory: str = "."
    """Folder in which commands start, relative to the workspace; the repository around it is what is judged and
    pushed."""
    resume: str = AUTO
    """`auto` continues an unfinished run found in the run folder, or starts over when it does not match; `never` always
    starts over; a path continues exactly that run."""
    run_folder: Text = None
    """Folder for the journal and the reports; empty means a new one under the runner's temporary folder."""
    # infrastructure
    ca_certificates: Text = None
    """Certificates (PEM text) of additional authorities to trust for the model's service, GitHub, and the push.
    Certificates are not secret, so an organization variable can hold them."""
    telemetry: TelemetryInput = TelemetryInput()
    """OpenTelemetry collector to which a run's trace and metrics are sent when it has ended, as a YAML map: `endpoint`,
    its address; `headers`, a map whose values count as secrets; `content`, `true` to send prompts and answers too."""
    # many issues, and proof of fix
    many_issues: Annotated[ManyIssuesInput, AfterValidator(check_keys_of_mode)] = Field(
        default=ManyIssuesInput(), validate_default=True
    )
    """YAML map. In the mode `plan`: `label` of the open issues to take; `limit`, the most issues of one page, 256 by
    default as a job matrix holds no more (a page whose texts are long holds fewer); `after`, such as the output
    `plan-next` of the page before, to take only issues with a higher number. In the mode `gather`: `from`, the folder
    below which the reports of the jobs were downloaded; `issues`, the output `plan-issues`, so that an issue whose job
    left no report is shown too. In both: `usd-total`, the most US dollars for all issues together; a page has only as
    many issues as it covers at `limits.usd` each."""
    prove: ProveInput | None = None
    """Command that runs the tests of a change, such as `pytest -q {tests}`, or a YAML map: `command`; `tests`, a list
    of globs of the test files; `max-hunks`, the parts to try by themselves, 20 by default; `hunks`, `require` if a part
    that no test holds fails the proof, or `tell`, the default; `comment`, `true` for a comment on the pull request."""
    host: str = ""
    """The host path of the runner's temporary folder; filled in by the runner, do not set it."""
    # not inputs of the action: from the runner's environment, or flags of the command line
    github_api_url: str = "https://api.github.com"
    """Address of GitHub's API."""
    github_server_url: str = "https://github.com"
    """Address of the GitHub server, from which the push URL is made."""
    structured_output: StructuredOutput = StructuredOutput.AUTO
    """How a model is made to answer in the form of a step's schema: `native` by the API's own structured output,
    `prompt` by the schema in words; `auto` begins with the first and moves on when the server does not heed it."""
    record: Text = None
    """File in the run folder to which the model's answers are written as a scenario that can be replayed."""
    debug: Flag = False
    """Whether the log also shows prompts and answers in full."""

    @model_validator(mode="after")
    def settle(self) -> Self:
        """Let a scenario answer, close a proof's network unless one is given, and narrow the inputs to the policy, so
        that nobody ever sees them wider."""
        given = self
        if self.mode is Mode.PROVE and "network" not in self.model_fields_set:
            given = given.model_copy(update={"network": NetworkAccess(reach=Network.NONE)})
        if self.scenario:
            given = given.model_copy(update={"model": self.model.model_copy(update={"provider": Provider.SCRIPTED})})
        if policy := self.policy:
            least = policy.narrow_permission(self.start.min_permission)
            narrowed = {
                "network": policy.narrow_network(given.network),
                "limits": self.limits.narrowed_to(policy.limits),
                "start": self.start.model_copy(update={"min_permission": least}),
            }
            given = given.model_copy(update=narrowed)
        return given

    @property
    def names_run(self) -> bool:
        """Whether `resume` names one particular run."""
        return self.resume not in (AUTO, NEVER)

    @property
    def allow_spec_violations(self) -> bool:
        """Whether steps may fall back to an intent."""
        return Allowance.SPEC_VIOLATIONS in self.allow

    def options(self) -> JsonObject:
        """Return all options except secrets and `many-issues`, as JSON for the journal."""
        others: dict[str, Any] = {name.replace("-", "_"): _secret_part(name) for name in SECRET_INPUTS}
        options: JsonObject = self.model_dump(mode="json", by_alias=True, exclude=others | {"many_issues": True})
        return options

    def budget(self, agent: AgentDefinition) -> float:
        """Return what a run may cost, in US dollars: the lower of the agent's own budget and the input."""
        return min(self.limits.usd, agent.max_usd or self.limits.usd)

    def run_limits(self, agent: AgentDefinition, *, now: float, spent: Spent | None = None) -> Limits:
        """Return the limits of a run that starts now. Inputs take precedence over the agent's own limits; `spent` is
        the cost of other runs on the issue, if known."""
        dollars, before = self.budget(agent), None
        whole = self.limits.usd_per_issue
        if spent and whole is not None and whole - spent.usd < dollars:
            # May be negative: then nothing is left, and the reason can still name the whole budget.
            dollars, before = whole - spent.usd, spent.usd
        limits = agent.verdict.limits
        return replace(
            limits,
            iterations=agent.cap(self.limits.iterations or limits.iterations),
            tokens=self.limits.tokens,
            usd=dollars,
            spent_before=before,
            usd_by_agent=before is None and dollars < self.limits.usd,
            deadline=now + self.limits.minutes * 60,
        )

    def secrets(self) -> tuple[str, ...]:
        """Return the secret values, none of which may appear in any output."""
        values = (value for _name, value in self if isinstance(value, SecretStr))
        mapped = (*self.mcp_secrets.values(), *self.telemetry.headers.values())
        in_maps = (part for value in mapped for part in secret_parts(value.get_secret_value()))
        return (*(value.get_secret_value() for value in values), *in_maps)


#: Fields that the action takes from the runner's environment, or does not have.
NO_INPUTS = frozenset({"github-api-url", "github-server-url", "structured-output", "record", "debug"})

#: The scenario that a job with debug logging writes into the run folder.
RECORDED = "recorded.yaml"


def _holds_secret(kind: object) -> bool:
    """Return whether an input's type has a secret in it."""
    if isinstance(kind, type) and issubclass(kind, InputMap):
        return any(_holds_secret(field.annotation) for field in kind.model_fields.values())
    return kind is SecretStr or any(map(_holds_secret, get_args(kind)))


#: Inputs whose values no log may show, or not all of them.
SECRET_INPUTS = tuple(in_dashes(name) for name, field in Inputs.model_fields.items() if _holds_secret(field.annotation))


def _secret_part(name: str) -> bool | set[str]:
    """Return what `model_dump` has to leave out of a secret input: all of it, or keys of a map."""
    kind = Inputs.model_fields[name.replace("-", "_")].annotation
    if not (isinstance(kind, type) and issubclass(kind, InputMap)):
        return True
    return {key for key, field in kind.model_fields.items() if _holds_secret(field.annotation)}


def secret_values(name: str, text: str) -> tuple[str, ...]:
    """Return the parts of a secret input's text that no log may show. What cannot be read counts as secret."""
    kind = Inputs.model_fields[name.replace("-", "_")].annotation
    if kind != dict[str, SecretStr] and not (isinstance(kind, type) and issubclass(kind, InputMap)):
        return (text,)
    try:
        values = parse_yaml_map(text)
    except ValueError:
        return (text,)
    given = values if isinstance(values, dict) else {}
    if isinstance(kind, type) and issubclass(kind, InputMap):
        public = {in_dashes(key) for key, field in kind.model_fields.items() if not _holds_secret(field.annotation)}
        given = {key: value for key, value in given.items() if key not in public}
    return tuple(part for value in _leaves(given) for part in secret_parts(value))


def _leaves(value: object) -> Iterator[str]:
    """Yield every text in a map. One that is a map itself counts as a whole and in its parts."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _leaves(each)
    elif value is not None:
        yield str(value)
        with suppress(ValueError):
            yield from _leaves(parse_yaml_map(str(value)))


def read_inputs(values: Mapping[str, Any]) -> Inputs:
    """Check all inputs at once. A blank text counts as not set. Raises one `InputError` with every problem."""
    given = {name: value for name, value in values.items() if not isinstance(value, str) or value.strip()}
    try:
        return Inputs.model_validate(given)
    except ValidationError as exc:
        errors = exc.errors(include_input=False)
        is_policy = all(error["loc"][:1] == ("policy",) for error in errors)
        where = f"variable {VARIABLE}" if is_policy else "`with:` block (or the flags)"
        lines = map(_message, errors)
        raise InputError(f"{'; '.join(lines)}.", hint=f"Correct the {where} and start again.") from None


def _message(error: ErrorDetails) -> str:
    # For an input that is not set, pydantic reports the name of the field.
    name, *keys = map(str, error["loc"])
    message = describe_error(error)
    if keys and error["type"] == "extra_forbidden":
        *keys, unknown = keys
        message = _describe_unknown_key((name, *keys), unknown)
    return f"input {'.'.join((in_dashes(name), *keys))}: {message}"


def _describe_unknown_key(place: Sequence[str], unknown: str) -> str:
    kind: type[BaseModel] = Inputs
    for name in place:
        kind = map_at(kind, name)
    known = {key: f'"{key}"' for key in known_keys(kind)}
    return f"there is no key `{unknown}`{_suggest(unknown, known)}; it knows {', '.join(known)}"


def map_at(kind: type[BaseModel], name: str) -> type[BaseModel]:
    """Return the class of an input, or of a key of a map, that is a map of known keys."""
    fields = (field for key, field in kind.model_fields.items() if name in (in_dashes(key), field.alias))
    kinds = (each for field in fields for each in (field.annotation, *get_args(field.annotation)))
    return next(each for each in kinds if isinstance(each, type) and issubclass(each, InputMap))


#: The inputs whose keys somebody may take for inputs.
_MAPS = ("limits", "start", "model", "telemetry")


def suggest_input(unknown: str) -> str:
    """Return ` (did you mean …?)` with the input or the key of an input that is most similar, or nothing."""
    keys = {key: f'the key "{key}" of "{name}"' for name in _MAPS for key in known_keys(map_at(Inputs, name))}
    names = {name: f'"{name}"' for name in map(in_dashes, Inputs.model_fields) if name not in NO_INPUTS}
    return _suggest(unknown, keys | names)


def _suggest(unknown: str, known: Mapping[str, str]) -> str:
    """Return ` (did you mean …?)` for the word that ends the unknown one, or else resembles it."""
    from stepflow.definition.diagnostics import closest_match  # noqa: PLC0415 - only a mistake needs it

    near = max((each for each in known if f"-{unknown}".endswith(f"-{each}")), key=len, default=None)
    near = near or closest_match(unknown, known)
    return f" (did you mean {known[near]}?)" if near else ""
