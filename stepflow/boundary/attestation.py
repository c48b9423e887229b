"""Unpacks the artifact with a run's journal and statement, and has GitHub's own command line check who signed it: it
knows whose certificates to trust."""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from pydantic import AliasPath, Field, TypeAdapter, ValidationError

from stepflow.boundary.github_types import Answer
from stepflow.domain.json import JsonObject
from stepflow.errors import BoundaryError, InputError

_SECONDS = 120
#: Characters of what `gh` says.
_LONGEST = 600
_CERTIFICATE = ("verificationResult", "signature", "certificate")


class SignedStatement(Answer):
    """A statement whose signature is valid, with what the certificate says of the job that signed it. `signer` is the
    workflow file with its ref; `source_ref` and `source_commit` are what the job was started on."""

    statement: JsonObject = Field(validation_alias=AliasPath("verificationResult", "statement"))
    signer: str = Field(validation_alias=AliasPath(*_CERTIFICATE, "buildSignerURI"))
    source: str = Field(validation_alias=AliasPath(*_CERTIFICATE, "sourceRepositoryURI"))
    source_ref: str = Field(validation_alias=AliasPath(*_CERTIFICATE, "sourceRepositoryRef"))
    source_commit: str = Field(validation_alias=AliasPath(*_CERTIFICATE, "sourceRepositoryDigest"))


@dataclass(frozen=True, kw_only=True)
class SignaturePolicy:
    """Whose signature counts: that of a job of the `repository`, by the workflow file `signer`, about a predicate of
    this type."""

    repository: str
    #: OWNER/REPOSITORY/PATH.
    signer: str
    predicate_type: str
    #: Sigstore bundles instead of those that GitHub keeps, and authorities instead of GitHub's and the public ones.
    bundle: Path | None = None
    trusted_root: Path | None = None


def read_signatures(
    journal: Path, policy: SignaturePolicy, *, program: Path | None, token: str
) -> tuple[SignedStatement, ...]:
    """Return the statements about this file that were signed as the policy demands. Raises `BoundaryError` if there are
    none, and `InputError` without `gh`."""
    if program is None:
        raise InputError(
            "The signature cannot be checked, because there is no `gh`.",
            hint="Install GitHub's command line (https://cli.github.com), or leave the signature out with --unsigned.",
        )
    words = [str(program), "attestation", "verify", str(journal), "--format", "json"]
    words += ["--repo", policy.repository, "--signer-workflow", f"github.com/{policy.signer}"]
    words += ["--predicate-type", policy.predicate_type]
    words += ["--bundle", str(policy.bundle)] if policy.bundle else []
    words += ["--custom-trusted-root", str(policy.trusted_root)] if policy.trusted_root else []
    environment: Mapping[str, str] = {**os.environ, **({"GH_TOKEN": token} if token else {}), "NO_COLOR": "1"}
    try:
        done = subprocess.run(  # noqa: S603 - fixed words, no shell
            words,
            # Not in the checkout, whose settings `gh` would read.
            cwd=journal.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise BoundaryError(f"`gh attestation verify` does not run: {exc}.", hint="Try it again.") from exc
    if done.returncode:
        raise BoundaryError(f"`gh attestation verify` refused it: {' '.join(done.stderr.split())[-_LONGEST:]}")
    try:
        return tuple(TypeAdapter(tuple[SignedStatement, ...]).validate_python(json.loads(done.stdout)))
    except (ValueError, ValidationError) as exc:
        raise BoundaryError(
            "The answer of `gh attestation verify` cannot be read.", hint="Use its newest version."
        ) from exc


_CHUNK = 1024 * 1024


def artifact_name(commit: str) -> str:
    """Return the name of the artifact of the run that pushed this commit."""
    return f"stepflow-{commit}"


def unpack_artifact(packed: bytes, sizes: Mapping[str, int], folder: Path) -> bool:
    """Write these files of the artifact into the folder, each of at most so many bytes, and return False if it does not
    have them all. Anybody's workflow may have made it, so nothing else of it is unpacked."""
    try:
        with zipfile.ZipFile(BytesIO(packed)) as archive:
            return all(_unpack_file(archive, name, folder / name, size) for name, size in sizes.items())
    except (zipfile.BadZipFile, KeyError, RuntimeError, ValueError, OSError, EOFError, zlib.error, lzma.LZMAError):
        return False


def _unpack_file(archive: zipfile.ZipFile, name: str, path: Path, largest: int) -> bool:
    with archive.open(name) as packed, path.open("wb") as file:
        size = 0
        while chunk := packed.read(_CHUNK):
            size += len(chunk)
            if size > largest:
                return False
            file.write(chunk)
    return True
