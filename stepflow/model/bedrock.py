"""What Bedrock needs: an older version of the API for older models, and inference profiles for newer ones."""

from __future__ import annotations

import re

from stepflow.domain.json import JsonObject

VERSION = "anthropic_version"
#: Opus 4.6 and earlier models take this version of the API, and refuse the one that the SDK sends (platform.claude.com,
#: "Claude on Amazon Bedrock (Opus 4.6 and earlier)").
OLD_VERSION: JsonObject = {VERSION: "bedrock-2023-05-31"}
_OLD_MODEL = re.compile(r"-\d{8}(?!\d)|-v\d+(?::\w+)*$|claude-(?:opus|sonnet)-4-6$")
#: A profile is named with its region, or as a resource.
_PROFILE = re.compile(r"arn:|[a-z-]+\.anthropic\.")


def is_old(model: str) -> bool:
    """Whether the id shows that the model is Opus 4.6 or an earlier one. That of a profile may hide it."""
    return bool(_OLD_MODEL.search(model))


def refuses_version(said: str) -> bool:
    """Whether a refusal is about the version of the API."""
    return any(words in said.lower() for words in (VERSION, "api version"))


def describe_model(model: str) -> str:
    """Name the model of a refused request, and how newer ones are reached if its id is not of that form."""
    advice = (
        " Newer models are reached only through an inference profile: check that `model` begins with `global.` or with "
        "your region's prefix, such as `us.`."
    )
    return f"The model is `{model}`.{'' if _PROFILE.match(model) else advice}"
