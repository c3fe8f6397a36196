"""Certificates for tests, made by the openssl command."""

import datetime
import ssl
import subprocess


def openssl(*arguments, stdin=""):
    subprocess.run(["openssl", *map(str, arguments)], input=stdin, text=True, check=True, capture_output=True)


def _validity(days):
    """OpenSSL 3.4 has flags for dates; newer releases refuse negative days."""
    said = subprocess.run(["openssl", "x509", "-help"], capture_output=True, text=True, check=False)
    if days > 0 or "-not_after" not in said.stdout + said.stderr:
        return "-days", days
    now = datetime.datetime.now(datetime.timezone.utc)
    return [word for flag, at in (("-not_before", days - 1), ("-not_after", days))
            for word in (flag, f"{now + datetime.timedelta(days=at):%Y%m%d%H%M%SZ}")]


class Authority:
    """A CA in a directory of its own. `certificate` is the path of its PEM file."""

    def __init__(self, directory, name="ca"):
        self._directory = directory / name
        self._directory.mkdir(parents=True)
        self.certificate, self._key = self._directory / "ca.pem", self._directory / "ca.key"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 30,
                "-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout", self._key,
                "-out", self.certificate)  # Python 3.13 refuses a CA without this extension

    def issue(self, name, days=10, names=()):
        """Returns the paths of a certificate, with further DNS names, and its key. Negative days: it has expired."""
        certificate, key, request = (self._directory / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
        extensions = self._directory / f"{name}.names"
        dns = ",".join(f"DNS:{each}" for each in ("localhost", name, *names))
        extensions.write_text(f"subjectAltName={dns},IP:127.0.0.1,IP:::1\n")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                "-keyout", key, "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial",
                *_validity(days), "-extfile", extensions, "-out", certificate)
        return certificate, key


def slow_chain(directory, most_bytes):
    """Returns the paths of certificates, of at most so many bytes (DER), and of the first one's key. The others belong to
    nobody, and their keys are slow to parse."""
    chain, key, slow_key, new = (directory / f"slow.{kind}" for kind in ("pem", "key", "slow-key", "new"))
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=stranger",
            "-keyout", key, "-out", chain)
    openssl("ecparam", "-name", "c2pnb368w1", "-genkey", "-noout", "-conv_form", "compressed", "-out", slow_key)
    openssl("req", "-x509", "-new", "-key", slow_key, "-subj", "/CN=a", "-out", new)
    size = len(ssl.PEM_cert_to_DER_cert(new.read_text())) + 3
    with chain.open("a") as file:
        file.write(new.read_text() * ((most_bytes - 1024) // size))
    return chain, key
