"""What the model says in the end-to-end tests, turn by turn."""

from __future__ import annotations

from tests.servers.messages_api import Answer, Failure, answers, calls

MODEL_KEY = "sk-ant-canary-model-key"
WORKFLOW_TOKEN = "ghs_canaryworkflowtoken"
RUNTIME_TOKEN = "canary-runtime-token"
EVENT_CANARY = "canary-in-the-event-file"
CHECKOUT_CREDENTIAL = "eC1hY2Nlc3MtdG9rZW46Z2hzX2NhbmFyeQ=="
#: What the action is handed, and with it what else lies about on a runner.
SECRETS = (MODEL_KEY, WORKFLOW_TOKEN, RUNTIME_TOKEN)
ALL_SECRETS = (*SECRETS, EVENT_CANARY, CHECKOUT_CREDENTIAL)

# All that a tool could try for a secret or for a say in the job, on a runner and under act.
HUNT = r"""
exec 2>&1
env; cat .git/config; git config --list --show-origin
cat /proc/[0-9]*/environ | tr '\0' '\n'
cat /var/run/act/workflow/* /github/workflow/* /github/file_commands/* /github/runner_temp/* "$RUNNER_TEMP"/*
for file in /var/run/act/workflow/*.txt /github/file_commands/*; do echo outcome=hijacked >> "$file"; done
python3 - <<'PY'
import socket
with socket.socket(socket.AF_UNIX) as client:
    try:
        client.connect("/var/run/docker.sock")
        print("the engine's socket was reached")
    except OSError as refusal:
        print("the engine's socket refused:", type(refusal).__name__)
PY
echo '::set-output name=outcome::hijacked'
echo "hunted as uid $(id -u)"
"""

LEFT_RUNNING = "sleep 4711000"

# Who the tools are and what they can do, one `name=value` a line; new files and a process are left behind.
LOOK = rf"""
fact() {{ echo "$1=$2"; }}
status() {{ sed -n "s/^$1:[[:space:]]*//p" /proc/self/status; }}
fact uid "$(id -u)"; fact gid "$(id -g)"; fact groups "$(id -G)"
fact capabilities "$(status CapEff)"; fact no-new-privileges "$(status NoNewPrivs)"
fact processes "$(ulimit -u)"
fact commits "$(git rev-list --count HEAD)"; fact dirty "$(git status --porcelain)"
fact home "$(echo written | tee "$HOME/note")"; fact tmp "$(echo written | tee "$TMPDIR/note")"
echo 'size: int = 1' > "$TMPDIR/size.py"; mypy --strict --cache-dir="$TMPDIR/types" "$TMPDIR/size.py" > "$TMPDIR/said"
fact types "$?"
fact ours "$(touch /opt/stepflow/note 2> "$TMPDIR/said" || echo kept)"
fact signal "$(kill -0 1 2> "$TMPDIR/said" || echo refused)"
mkdir -p made/inside; echo new > made/inside/file; chmod -R o+w made
setsid {LEFT_RUNNING} < /dev/null > /dev/null 2>&1 &
"""

COMMIT = "git -c user.name=Model -c user.email=model@example.invalid commit --quiet --all --message 'Fix the size'"
REPAIR = {
    "file_path": "sizes.py",
    "old_string": "return UNITS.get(text[-1], 1) * text[:-1]",
    "new_string": "return UNITS[text[-1]] * int(text[:-1]) if text[-1] in UNITS else int(text)",
}
CLOSING = {
    "comment": "The unit is honored now. Thanks @everyone, fixes #1.",
    "pull_request": {"title": "Honor the unit of a size", "body": "The number was never converted."},
}


def refuse(message: str) -> Failure:
    """What the model's service says to a request that nobody makes again."""
    return Failure(status=400, error="invalid_request_error", message=message)


def fix_with_one_forgotten_commit() -> list[Answer]:
    """The fixer's five steps: it hunts for secrets, repairs, forgets to commit, is sent back, commits, closes."""
    return [
        calls(("bash", {"command": HUNT})),
        answer("initial.issue", "next", understanding="the number is repeated as text instead of multiplied"),
        calls(("edit", REPAIR), ("bash", {"command": "mypy --strict --cache-dir=/dev/null sizes.py"})),
        answer("continuation.issue", "handoff", summary="the number is converted before it is multiplied"),
        answer("closure.issue", "closing", **CLOSING),
        calls(("bash", {"command": COMMIT})),
        answer("continuation.issue", "handoff", summary="the repair is committed"),
        answer("closure.issue", "closing", **CLOSING),
    ]


def fix_shortly() -> list[Answer]:
    """The fixer's shortest way."""
    return [
        answer("initial.issue", "next", understanding="the number is repeated as text instead of multiplied"),
        calls(("edit", REPAIR), ("bash", {"command": COMMIT})),
        answer("continuation.issue", "handoff", summary="the number is converted before it is multiplied"),
        answer("closure.issue", "closing", **CLOSING),
    ]


def look_around_and_answer() -> list[Answer]:
    """The closer's three steps; it tells what its tools are, and in the next step what is left of the first."""
    count = f"echo '{LEFT_RUNNING}:' $(ps -eo args | grep -cxF '{LEFT_RUNNING}')"
    return [
        calls(("bash", {"command": LOOK})),
        answer("initial.question", "next"),
        calls(("bash", {"command": count})),
        *answer_the_question()[2:],
    ]


def use_what_was_set_up() -> list[Answer]:
    """The closer's three steps; it uses a program and a file that the action's inputs have put there."""
    command = "echo $(tree -i --noreport -P '*.py' | tail -n 1) $(cat ~/state)"
    return [calls(("bash", {"command": command})), *answer_the_question()[:1], *answer_the_question()[2:]]


def answer_the_question() -> list[Answer]:
    """The closer's three steps."""
    return [
        answer("initial.question", "next"),
        calls(("grep", {"pattern": "1024"})),
        answer("continuation.question", "handoff", answer="a k is 1024 bytes"),
        answer("closure.question", "closing", closure_action="close", comment="A k is 1024.", verdict="answered"),
    ]


def answer(step: str, intent: str, **more: object) -> Answer:
    """The structured answer of a step."""
    return answers({"stepId": step, "next_action": {"action": intent, "reason": f"{step} is through"}, **more})
