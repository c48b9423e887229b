"""An agent run from a program: `python examples/run_agent.py`.

No key and no network: the answers come from greeter.yaml, the tools and the validator are real. With a key, put
`AnthropicModel(os.environ["ANTHROPIC_API_KEY"])` in place of the scripted model.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from stepflow import Entry, ScriptedModel, StepFlowRunner, load_agent, load_scenario

HERE = Path(__file__).parent


def show(entry: Entry) -> None:
    """One entry of the journal."""
    print(f"  {entry.seq}. {entry.event.event}")


def main() -> None:
    """Load the agent, run it in an empty folder, tell how it went."""
    definition = load_agent(HERE / ".agent" / "greeter")
    runner = StepFlowRunner(definition, model=ScriptedModel(load_scenario(HERE / "greeter.yaml")), log=show)

    with tempfile.TemporaryDirectory() as folder:
        result = runner.run(args={"whom": "Ada"}, cwd=folder)

    print(f"Success: {result.success}")
    print(f"Final step: {result.report.final_step_id}")
    print(f"Completion: {result.reason}")
    for entry in result.report.history:
        print(f"{entry.iteration}. {entry.step_id}: {entry.transition} ({entry.reason})")


if __name__ == "__main__":
    main()
