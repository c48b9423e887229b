"""What one run is asked for: its trigger, its inputs and its folders."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from ipaddress import ip_address, ip_network
from pathlib import Path
from urllib.parse import unquote, urlsplit

from stepflow.boundary.commit_check import CommitRules
from stepflow.boundary.github_failures import RetryPolicy
from stepflow.boundary.settings import BoundarySettings
from stepflow.definition.folder import AGENTS
from stepflow.domain.connection import Connection
from stepflow.domain.definition import AgentDefinition
from stepflow.domain.run import FollowUp
from stepflow.domain.secrets import Redactor, login_files
from stepflow.domain.words import Commits
from stepflow.errors import InputError
from stepflow.ports import Clock
from stepflow.run.inputs import Inputs
from stepflow.run.trigger import Trigger
from stepflow.sandbox.egress.allowed_hosts import parse_allowed_hosts
from stepflow.sandbox.environment import SYSTEM_PATH, variables_for
from stepflow.sandbox.isolation import ToolboxOptions
from stepflow.sandbox.workspace import HEADS, head_commit, pushed_branch

#: Where the job's other steps write: folders, files of the runner in folders of its own, where it mounts them into a
#: container, and what is made of a process's own variables.
_WRITABLE_FOLDERS = ("GITHUB_WORKSPACE", "RUNNER_TEMP")
_WRITABLE_FILES = ("GITHUB_EVENT_PATH", "GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_STEP_SUMMARY")
_WRITABLE = ("/github", "/proc", "/sys", "/dev")


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """One run. `root` is the repository's root, `folder` the run folder on this machine and `host_folder` the same
    place as the workflow's next step sees it; `repository` is `owner/name` and `job_url` leads to the job,
    both empty when unknown. Of the `environment` the input `pass-env` may name variables; those `withheld` were taken
    out of it because they hold secrets. `credentials` are the job's secrets that are no input. `login` is what the
    services of models may read of the job's variables. `runner_temp` is None on a person's own machine. `program_path`
    is where the system's own programs are looked for, and `programs` are the folders in which tools find theirs, None
    for the fixed ones. `source` is the checkout that `root`, the run's workspace, is made from; None before there is
    one. A run with its `own_branch` begins there, without what is uncommitted; one that is `in_place` moves the branch
    that is checked out to its commits, and with `demand_clean` it begins only where no file is uncommitted. With
    `approvals_given` no step waits for approval. A `follow_up` begins at the head of a pull request of ours.
    `resumed_from` is the commit where a run began that goes on. What GitHub is asked before the run has a
    `retry_policy`."""

    run_id: str
    inputs: Inputs
    trigger: Trigger
    root: Path
    folder: Path
    host_folder: str = ""
    repository: str = ""
    job_url: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    withheld: frozenset[str] = frozenset()
    credentials: tuple[str, ...] = field(default=(), repr=False)
    login: Mapping[str, str] = field(default_factory=dict, repr=False)
    runner_temp: Path | None = None
    program_path: tuple[str, ...] = SYSTEM_PATH
    programs: tuple[Path, ...] | None = None
    source: Path | None = None
    own_branch: bool = False
    in_place: bool = False
    demand_clean: bool = False
    approvals_given: bool = False
    follow_up: FollowUp | None = None
    resumed_from: str = ""
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)

    @property
    def definition_root(self) -> Path:
        """Where agents and scenarios are read: in the checkout itself, as they stand there."""
        return agents_folder(self.checkout, self.inputs)

    @property
    def base_commit(self) -> str:
        """The commit that the run's own build on; empty where there is none."""
        return self.resumed_from or head_commit(self.checkout)

    @cached_property
    def branch(self) -> str:
        """The branch that the run's commits build on: the one that is checked out and that the server has too, else the
        one that the workflow was started on; empty for a tag or where neither is known."""
        ref = self.environment.get("GITHUB_REF", "")
        started_on = ref.removeprefix(HEADS) if ref.startswith(HEADS) else ""
        return pushed_branch(self.checkout) or started_on

    def base_branch(self, agent: AgentDefinition) -> str:
        """The branch that the run's pull request goes to; empty where it is not known."""
        if self.follow_up:
            return self.follow_up.base
        return agent.github.pull_request.base or self.branch or self.trigger.default_branch

    @property
    def at_terminal(self) -> bool:
        """Whether the commits come into the user's own repository, and are not only pushed."""
        return self.own_branch or self.in_place

    @property
    def checkout(self) -> Path:
        """The user's checkout, which no tool ever touches."""
        return self.source or self.root

    @property
    def login_files(self) -> tuple[Path, ...]:
        """The files with credentials that steps before left in the checkout, relative to it."""
        return login_files_in(self.checkout, self.login)

    def secrets(self) -> tuple[str, ...]:
        """Every value that nothing of this run may hold."""
        return (*self.own_secrets(), *proxy_passwords(self.environment))

    def own_secrets(self) -> tuple[str, ...]:
        """The same but for passwords of proxies, which the workflow's author may lend to tools."""
        return (*self.inputs.secrets(), *self.credentials)

    @cached_property
    def proxy_config(self) -> ProxyConfig:
        """How this run's own calls leave the machine. Raises `InputError` for what cannot be used."""
        return proxy_config_of(self.inputs, self.environment, self.root)

    @cached_property
    def redactor(self) -> Redactor:
        """The one redactor of this run, for every sink."""
        return Redactor(self.secrets())


def with_retries(request: RunRequest, clock: Clock, note: Callable[[str], None]) -> RunRequest:
    """The request of a run that begins now, whose questions to GitHub are asked again until its deadline."""
    deadline = clock.now() + request.inputs.timeout_minutes * 60
    return replace(request, retry_policy=RetryPolicy.of(clock, deadline, note))


def locate_repository(folder: Path, within: Path, inputs: Inputs) -> tuple[Path, Inputs]:
    """The root of the repository that a working directory lies in, which does not lie above `within`, and the inputs
    with the working directory relative to it. A folder that lies in none stands for itself."""
    above = (folder, *folder.parents)
    root = next((each for each in above if each.is_relative_to(within) and os.path.lexists(each / ".git")), folder)
    return root, inputs.model_copy(update={"working_directory": str(folder.relative_to(root))})


def agents_folder(root: Path, inputs: Inputs) -> Path:
    """The folder whose agents count: the working directory, if it has some, else the root of the repository."""
    folder = root / inputs.working_directory
    return folder if (folder / AGENTS).is_dir() else root


def proxy_config_of(inputs: Inputs, environment: Mapping[str, str], root: Path) -> ProxyConfig:
    """How a job's own calls leave the machine. Raises `InputError` for what cannot be used."""
    folders = (environment.get(name) for name in _WRITABLE_FOLDERS)
    files = (environment.get(name) for name in _WRITABLE_FILES)
    written = (*(path for path in (*folders, *_WRITABLE) if path), *(str(Path(path).parent) for path in files if path))
    return read_proxy_config(environment, inputs.ca_certificates or "", writable=(root, *map(Path, written)))


def login_files_in(root: Path, login: Mapping[str, str]) -> tuple[Path, ...]:
    """Of the files that log in, those in the checkout, relative to it."""
    checkout = root.resolve()
    files = (Path(checkout, name).resolve() for name in login_files(login))
    return tuple(dict.fromkeys(path.relative_to(checkout) for path in files if path.is_relative_to(checkout)))


#: The first that is set counts; the lower-case form is the older one, which programs agree on.
_PROXIES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
_NO_PROXY = ("no_proxy", "NO_PROXY")
#: What apt-get is given, beside those above.
_PLAIN_PROXIES = ("http_proxy", "HTTP_PROXY")
#: Files of certificates, as programs of different makers look for them.
BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS")
_HTTPS_PORT = 443
_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_MOST_BYTES = 4 * 1024 * 1024
_INSTEAD = "Give the certificates themselves, as text, in the input `ca-certificates`."


@dataclass(frozen=True, kw_only=True)
class ProxyConfig:
    """`variable` named the `proxy`, a URL; both empty for none. `certificates` is PEM, `trusted` says where it is from;
    `notes` are warnings about variables that do not count."""

    proxy: str = ""
    variable: str = ""
    no_proxy: str = ""
    certificates: str = ""
    trusted: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def connection_to(self, url: str) -> Connection:
        """The way to an address. Plain http only leads to this machine itself, so no proxy ever reads a secret."""
        parts = urlsplit(url)
        proxied = self.proxy and parts.scheme == "https" and not _is_exempt(parts.netloc, self.no_proxy)
        return Connection(proxy=self.proxy if proxied else "", variable=self.variable, certificates=self.certificates)

    def describe(self, urls: Iterable[str]) -> Iterator[str]:
        """What the log shows of it: which of these addresses are reached how."""
        hosts = {urlsplit(url).netloc: self.connection_to(url) for url in urls}
        if through := [host for host, connection in hosts.items() if connection.proxy]:
            shown = Connection(proxy=self.proxy).shown_proxy
            yield f"{', '.join(through)} through the proxy {shown} ({self.variable})"
        if self.proxy and (directly := [host for host, connection in hosts.items() if not connection.proxy]):
            yield f"{', '.join(directly)} without the proxy"
        if self.trusted:
            count = len(_BLOCK.findall(self.certificates))
            by = ", ".join(self.trusted)
            yield f"{count} certificate{'' if count == 1 else 's'} trusted besides the public ones, by {by}"


def read_proxy_config(environment: Mapping[str, str], certificates: str, *, writable: Iterable[Path]) -> ProxyConfig:
    """What variables and input say. Files below a `writable` folder do not count: earlier steps write there.

    Raises `InputError` for a proxy or certificates that cannot be used.
    """
    variable = next((name for name in _PROXIES if environment.get(name, "").strip()), "")
    folders = tuple(folder.resolve() for folder in writable)
    named = {name: environment[name] for name in BUNDLES if environment.get(name, "").strip()}
    read = {name: _bundle(name, path, folders) for name, path in named.items()}
    blocks = {
        "ca-certificates": _given(certificates),
        **{name: certificates for name, (certificates, _) in read.items()},
    }
    return ProxyConfig(
        proxy=_proxy(variable, environment[variable]) if variable else "",
        variable=variable,
        no_proxy=next((environment[name] for name in _NO_PROXY if environment.get(name)), ""),
        certificates="\n".join(dict.fromkeys(block for certificates in blocks.values() for block in certificates)),
        trusted=tuple(name for name, certificates in blocks.items() if certificates),
        notes=tuple(dict.fromkeys(note for _, note in read.values() if note)),
    )


def proxy_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of proxies as they stand, for the machine's own package manager."""
    return {name: environment[name] for name in (*_PROXIES, *_PLAIN_PROXIES, *_NO_PROXY) if environment.get(name)}


def proxy_passwords(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Every password in a proxy's URL, as it is written, as it is meant, and with its user."""
    return tuple(
        dict.fromkeys(form for name in (*_PROXIES, *_PLAIN_PROXIES) for form in _forms(environment.get(name, "")))
    )


def proxy_secrets_in(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the variables whose URL holds a password."""
    return tuple(name for name in (*_PROXIES, *_PLAIN_PROXIES) if any(_forms(environment.get(name, ""))))


def _forms(url: str) -> tuple[str, ...]:
    user, _, password = url.strip().rpartition("@")[0].rpartition("//")[2].partition(":")
    return (password, unquote(password), f"{unquote(user)}:{unquote(password)}") if password else ()


def _proxy(variable: str, value: str) -> str:
    url = value.strip() if "://" in value else f"http://{value.strip()}"
    shown = url.rpartition("@")[2].removeprefix(f"{url.partition('://')[0]}://")
    try:
        parts = urlsplit(url)
        bad = not parts.hostname or parts.port == 0
    except ValueError:
        bad = True
    if bad or parts.scheme != "http":
        raise InputError(
            f"{variable}: {shown!r} cannot be used as a proxy.",
            hint="Write it as http://HOST:PORT, perhaps with USER:PASSWORD@ before the host; what goes through it is "
            "encrypted all the same. Proxies of other kinds (https, socks5) are not supported.",
        )
    return url


def _is_exempt(netloc: str, no_proxy: str) -> bool:
    """Whether NO_PROXY names the host: by name, as part of a domain, with its port, or as an address in a network."""
    parts = urlsplit(f"//{netloc}")
    host, port = parts.hostname or "", parts.port or _HTTPS_PORT
    return any(_covers(name, host, port) for name in re.split(r"[,\s]+", no_proxy.lower()) if name)


def _covers(name: str, host: str, port: int) -> bool:
    if name == "*":
        return True
    try:
        return ip_address(host) in ip_network(name.replace("[", "").replace("]", ""), strict=False)
    except ValueError:
        pass
    domain, _, wanted = name.partition(":")
    domain = domain.removeprefix("*").removeprefix(".")
    return wanted in ("", str(port)) and bool(domain) and (host == domain or host.endswith(f".{domain}"))


def _given(text: str) -> tuple[str, ...]:
    blocks = tuple(_BLOCK.findall(text))
    if text.strip() and not (blocks and _is_readable(blocks)):
        raise InputError(
            "The input ca-certificates holds no certificate that can be read.",
            hint="Give the text of a PEM file, from `-----BEGIN CERTIFICATE-----` on; a variable of the organization "
            "can hold it: `${{ vars.COMPANY_CA }}`.",
        )
    return blocks


def _bundle(name: str, value: str, writable: tuple[Path, ...]) -> tuple[tuple[str, ...], str]:
    """The certificates of a file, or a note why it does not count."""
    try:
        path = Path(value).resolve(strict=True)
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES).decode("ascii", errors="replace")
    except (OSError, RuntimeError):
        return (), f"{name} names {value}, which cannot be read here, so it does not count. {_INSTEAD}"
    if any(path.is_relative_to(folder) for folder in writable):
        message = f"{name} names {value}, where earlier steps of the job can write, so it does not count"
        return (), f"{message} for calls with a key or token. {_INSTEAD}"
    blocks = tuple(_BLOCK.findall(text))
    if not (blocks and _is_readable(blocks)):
        return (), f"{name} names {value}, which holds no certificate that can be read, so it does not count."
    return blocks, ""


def _is_readable(blocks: tuple[str, ...]) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata="\n".join(blocks))
    except (ssl.SSLError, ValueError):
        return False
    return True


def commit_rules(request: RunRequest, agent: AgentDefinition) -> CommitRules:
    """What the commits of a run must keep to."""
    github = agent.github
    return CommitRules(
        protected_paths=github.protected_paths,
        allowed_secret_paths=github.allowed_secret_paths,
        most_files=github.pull_request.max_files,
        most_bytes=github.pull_request.max_bytes,
        by_api=request.inputs.commits is Commits.VERIFIED,
    )


def toolbox_options(request: RunRequest) -> ToolboxOptions:
    """What the inputs say about the sandbox."""
    inputs, environment = request.inputs, request.environment
    passed = {name: environment[name] for name in inputs.pass_env if name in environment}
    programs = request.programs
    passed = {**variables_for(programs or (), environment), **passed}
    return ToolboxOptions(
        isolation=inputs.isolation,
        network=inputs.network,
        allowed_hosts=parse_allowed_hosts(inputs.allowed_hosts),
        connection_to=request.proxy_config.connection_to,
        pass_env=passed,
        working_directory=inputs.working_directory,
        home_programs=bool(inputs.setup),
        # What lies in the workspace can be changed by tools, and must not stand in for another program.
        programs=programs and tuple(folder for folder in programs if not folder.is_relative_to(request.root)),
        private_root=request.root.parent if request.source else None,
    )


def boundary_settings(request: RunRequest) -> BoundarySettings:
    """What the inputs and the event say about writing."""
    inputs, trigger = request.inputs, request.trigger
    return BoundarySettings(
        repository=request.repository,
        actor=trigger.actor,
        actor_is_bot=trigger.actor_is_bot,
        server_url=inputs.github_server_url,
        trigger_labels=inputs.trigger_labels,
        started_by_label=trigger.label,
        min_permission=inputs.min_permission,
        allow_bots=inputs.allow_bots,
        on_failure=inputs.on_failure,
        issue_text_from_event=trigger.issue is not None,
    )
