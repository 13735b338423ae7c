"""A CA for a private network, and certificates that it signs; each proves a server and a client alike."""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from plaudit.errors import FailedPreconditionError, InvalidArgumentError
from plaudit.service import check_private, unusable_folder
from plaudit.types.access import check_secret_name, check_server_name
from plaudit.types.validation import shown

CA_YEARS: Final = 10
DEFAULT_DAYS: Final = 397
RENEW_BEFORE: Final = timedelta(days=30)

_CLOCKS_DIFFER: Final = timedelta(hours=1)
"""A certificate is valid from a little before it was made: clocks of machines differ."""


@dataclass(frozen=True, slots=True)
class Issued:
    """The files of a certificate; `is_new` is false where the one that was there is good for longer."""

    certificate: Path
    key: Path
    ca: Path
    expires_at: datetime
    is_new: bool


class Authority:
    """The CA `name` in `folder`: `{name}.ca.pem`, and its key `{name}.ca-key.pem`, mode 0600."""

    def __init__(self, folder: Path, name: str) -> None:
        self.certificate_file = folder / f"{_checked('ca', name)}.ca.pem"
        self.key_file = folder / f"{name}.ca-key.pem"

    def make(self) -> bool:
        """Makes the CA; False where it is there already. Raises FailedPreconditionError."""
        if self.certificate_file.exists() and self.key_file.exists():
            self._read()
            return False
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Plaudit"),
                # Two CAs of one name, as after one was lost, are told apart.
                x509.NameAttribute(NameOID.COMMON_NAME, f"Plaudit CA {secrets.token_hex(4)}"),
            ]
        )
        certificate = (
            _builder(name, name, key.public_key(), timedelta(days=365 * CA_YEARS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(ca=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        _write(self.key_file, _pem_of_key(key), mode=0o600)
        _write(self.certificate_file, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)
        return True

    def issue(self, name: str, hosts: Sequence[str], folder: Path, *, days: int = DEFAULT_DAYS) -> Issued:
        """Writes `{name}.cert.pem`, `{name}.key.pem` (0600) and the CA's certificate into `folder`.

        One that is there is kept where it is for the same hosts and good for 30 days more. Raises
        InvalidArgumentError and FailedPreconditionError.
        """
        _checked("name", name)
        names = [_general_name(host) for host in hosts]
        if not names:
            raise InvalidArgumentError.of("host", "is missing; name every host by which it is dialled")
        authority, authority_key = self._read()
        files = folder / f"{name}.cert.pem", folder / f"{name}.key.pem", folder / self.certificate_file.name
        known = _good_one(files[0], files[1], authority, names)
        if known is not None:
            return Issued(*files, known.not_valid_after_utc, is_new=False)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
        lifetime = min(timedelta(days=days), authority.not_valid_after_utc - datetime.now(UTC))
        certificate = (
            _builder(subject, authority.subject, key.public_key(), lifetime)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(ca=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
            .sign(authority_key, hashes.SHA256())
        )
        authority_pem = authority.public_bytes(serialization.Encoding.PEM)
        # A service that starts in between finds a pair that does not go together, and is started again.
        _write(files[1], _pem_of_key(key), mode=0o600)
        _write(files[0], certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)
        _write(files[2], authority_pem, mode=0o644)
        return Issued(*files, certificate.not_valid_after_utc, is_new=True)

    def _read(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        try:
            certificate = x509.load_pem_x509_certificate(self.certificate_file.read_bytes())
            key = serialization.load_pem_private_key(self.key_file.read_bytes(), password=None)
        except FileNotFoundError as error:
            raise FailedPreconditionError(
                f"there is no CA: {error.filename} is missing; make it with `plaudit certs init`",
                reason="SECRET_MISSING",
            ) from None
        except (OSError, ValueError, TypeError) as error:
            raise FailedPreconditionError(
                f"the CA in {self.certificate_file.parent} cannot be used ({error})", reason="SECRET_UNUSABLE"
            ) from None
        check_private(self.key_file, "the key of the CA")
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise FailedPreconditionError(
                f"{self.key_file} is not the key of {self.certificate_file}", reason="SECRET_UNUSABLE"
            )
        return certificate, key


def _good_one(
    certificate_file: Path, key_file: Path, authority: x509.Certificate, names: Sequence[x509.GeneralName]
) -> x509.Certificate | None:
    """The certificate that is there, where nothing is to be gained by another one."""
    with suppress(OSError, ValueError, TypeError, x509.ExtensionNotFound):
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
        san = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        is_good = (
            certificate.not_valid_after_utc > datetime.now(UTC) + RENEW_BEFORE
            and certificate.public_key() == key.public_key()
            and set(san) == set(names)
        )
        if is_good and _is_signed_by(certificate, authority):
            return certificate
    return None


def _is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:  # of whatever kind: it is no signature of this CA
        return False
    return True


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lifetime: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(check_server_name(host))
    except ValueError as error:
        raise InvalidArgumentError.of("host", f"{shown(host)} is refused: {error}") from None


def _checked(field: str, name: str) -> str:
    try:
        return check_secret_name(name)
    except ValueError as error:
        raise InvalidArgumentError.of(field, f"{shown(name)} is refused: {error}") from None


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, data: bytes, *, mode: int) -> None:
    """Appears whole and with its mode from the first moment on."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            os.write(file, data)
            os.fsync(file)
        finally:
            os.close(file)
        partial.replace(path)
    except OSError as error:
        raise unusable_folder(path.parent, error) from None
