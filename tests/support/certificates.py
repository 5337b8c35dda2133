"""Certificates made for a test: an authority, and what it signs."""

import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)


def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _san(name: str) -> x509.GeneralName:
    if "://" in name:
        return x509.UniformResourceIdentifier(name)
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@dataclass(frozen=True)
class Pair:
    """The files of a certificate and its key."""

    certificate: Path
    key: Path

    @property
    def serial(self) -> int:
        """The certificate's serial number."""
        return x509.load_pem_x509_certificate(self.certificate.read_bytes()).serial_number


@dataclass
class Authority:
    """Signs certificates, whose files it puts into a folder."""

    folder: Path
    name: str = "authority"
    _key: ec.EllipticCurvePrivateKey = field(default_factory=_key)

    def __post_init__(self) -> None:
        certificate = self._signed(self.name, self._key, (), datetime.now(UTC) + _DAY, ca=True)
        self.file = self.folder / f"{self.name}.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *sans: str, days: float = 1.0) -> Pair:
        """Writes a certificate that ends in so many days, and its key, over those of this name."""
        key = _key()
        certificate = self._signed(name, key, sans, datetime.now(UTC) + days * _DAY, ca=False)
        pair = Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return pair

    def _signed(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        sans: tuple[str, ...],
        end: datetime,
        *,
        ca: bool,
    ) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(end - 10 * _DAY)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if sans:
            names = x509.SubjectAlternativeName([_san(san) for san in sans])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())
