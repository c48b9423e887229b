"""Signatures as GitHub's attestations have them, by authorities of the tests' own: Sigstore bundles with facts about a
job in the certificate, and a timestamp. `gh attestation verify` takes them with `--custom-trusted-root`."""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

Json = dict[str, Any]
PAYLOAD = "application/vnd.in-toto+json"
#: https://github.com/sigstore/fulcio/blob/main/docs/oid-info.md
FULCIO = "1.3.6.1.4.1.57264.1"
DAY = timedelta(days=1)
PEM = serialization.Encoding.PEM


@dataclass
class Signer:
    """An authority that certifies jobs, and one for timestamps, in a folder of their own."""

    folder: Path
    name: str = "stepflow tests"
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._authority("jobs", self.key)
        stamps_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        root = self._authority("timestamps", stamps_key)
        built = self._begin(self._name("clock"), root.subject, key, last=365 * DAY)
        built = built.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING]), critical=True)
        clock = built.sign(stamps_key, hashes.SHA256())
        private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        for name, content in {"key": private, "clock": clock.public_bytes(PEM), "root": root.public_bytes(PEM)}.items():
            (self.folder / name).write_bytes(content)
        (self.folder / "serial").write_text("01\n")
        places = {"serial": "serial", "signer_cert": "clock", "signer_key": "key", "certs": "root"}
        lines = [f"{name} = {self.folder / file}" for name, file in places.items()]
        lines += ["signer_digest = sha256", "digests = sha256", "default_policy = 1.2.3.4.1"]
        (self.folder / "openssl.cnf").write_text("\n".join(["[tsa]", "default_tsa = own", "[own]", *lines, ""]))
        self.trusted_root = self.folder / "trusted_root.jsonl"
        trusted = {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "certificateAuthorities": [self._trusted("https://jobs.invalid", self.certificate)],
            "timestampAuthorities": [self._trusted("https://timestamps.invalid", clock, root)],
        }
        self.trusted_root.write_text(json.dumps(trusted) + "\n")

    def sign(self, statement: Json, *, repository: str, workflow: str, ref: str = "refs/heads/main") -> Json:
        """The bundle of a job in a repository: `workflow` is the file that signs, with its own ref."""
        key, signer = ec.generate_private_key(ec.SECP256R1()), f"https://github.com/{workflow}"
        facts = {
            8: "https://token.actions.githubusercontent.com",
            9: signer,
            11: "github-hosted",
            12: f"https://github.com/{repository}",
            13: "a" * 40,
            14: ref,
            16: f"https://github.com/{repository.partition('/')[0]}",
            20: "issues",
            21: f"https://github.com/{repository}/actions/runs/1/attempts/1",
        }
        built = self._begin(x509.Name([]), self.certificate.subject, key, last=DAY)
        built = built.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
        built = built.add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(signer)]), critical=True
        )
        for number, text in facts.items():
            value = bytes([0x0C, len(text)]) + text.encode()
            fact = x509.UnrecognizedExtension(ObjectIdentifier(f"{FULCIO}.{number}"), value)
            built = built.add_extension(fact, critical=False)
        certificate = built.sign(self.key, hashes.SHA256())
        payload = json.dumps(statement).encode()
        # https://github.com/secure-systems-lab/dsse/blob/master/protocol.md
        signed = b"DSSEv1 %d %s %d %s" % (len(PAYLOAD), PAYLOAD.encode(), len(payload), payload)
        signature = key.sign(signed, ec.ECDSA(hashes.SHA256()))
        return {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": {"rawBytes": _der(certificate)},
                "timestampVerificationData": {"rfc3161Timestamps": [{"signedTimestamp": self._stamp(signature)}]},
            },
            "dsseEnvelope": {
                "payload": base64.b64encode(payload).decode(),
                "payloadType": PAYLOAD,
                "signatures": [{"sig": base64.b64encode(signature).decode()}],
            },
        }

    def _stamp(self, data: bytes) -> str:
        (self.folder / "data").write_bytes(data)
        query, reply = self.folder / "query", self.folder / "reply"
        given = ["-data", str(self.folder / "data"), "-sha256", "-cert", "-out", str(query)]
        own = ["-config", str(self.folder / "openssl.cnf"), "-queryfile", str(query), "-out", str(reply)]
        for words in (["-query", *given], ["-reply", *own]):
            subprocess.run(["openssl", "ts", *words], check=True, capture_output=True)
        return base64.b64encode(reply.read_bytes()).decode()

    def _name(self, name: str) -> x509.Name:
        pairs = ((NameOID.ORGANIZATION_NAME, self.name), (NameOID.COMMON_NAME, name))
        return x509.Name([x509.NameAttribute(*pair) for pair in pairs])

    def _authority(self, name: str, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
        built = self._begin(self._name(name), self._name(name), key, last=365 * DAY, signs_others=True)
        return built.sign(key, hashes.SHA256())

    def _begin(
        self,
        subject: x509.Name,
        issuer: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        last: timedelta,
        signs_others: bool = False,
    ) -> x509.CertificateBuilder:
        usage = dict.fromkeys(
            (
                *("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign"),
                *("encipher_only", "decipher_only"),
            ),
            False,
        )
        kind = x509.KeyUsage(digital_signature=not signs_others, key_cert_sign=signs_others, **usage)
        return (
            x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.now - DAY)
            .not_valid_after(self.now + last)
            .add_extension(x509.BasicConstraints(ca=signs_others, path_length=None), critical=True)
            .add_extension(kind, critical=True)
        )

    def _trusted(self, uri: str, *chain: x509.Certificate) -> Json:
        period = {"start": f"{self.now - DAY:%Y-%m-%dT%H:%M:%SZ}"}
        certificates = [{"rawBytes": _der(each)} for each in chain]
        whose = {"organization": self.name, "commonName": uri}
        return {"subject": whose, "uri": uri, "certChain": {"certificates": certificates}, "validFor": period}


def _der(certificate: x509.Certificate) -> str:
    return base64.b64encode(certificate.public_bytes(serialization.Encoding.DER)).decode()
