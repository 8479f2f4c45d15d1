"""Throw-away certificates, made with the openssl program when a test first asks for them."""

import atexit
import datetime
import functools
import pathlib
import ssl
import subprocess
import tempfile

_CNF = """
[ca]
default_ca = this
[this]
dir = {dir}
database = {dir}/index.txt
serial = {dir}/serial
crlnumber = {dir}/crlnumber
new_certs_dir = {dir}
certificate = {dir}/ca.pem
private_key = {dir}/ca.key
default_md = sha256
default_days = 30
default_crl_days = 30
policy = any
unique_subject = no
copy_extensions = copy
[any]
commonName = supplied
organizationName = optional
[req]
distinguished_name = empty
[empty]
[ca_extensions]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
"""

_KINDS = {"ec": ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], "rsa": ["rsa:2048"]}


def openssl(*arguments, text=None):
    done = subprocess.run(["openssl", *map(str, arguments)], input=text, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise AssertionError(f"openssl {' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


def _stamp(days):
    moment = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)
    return moment.strftime("%y%m%d%H%M%SZ")


class Certificate:
    """A leaf: `cert` alone, `chain` with the intermediates up to but not including the root, and `key`."""

    def __init__(self, cert, chain, key):
        self.cert, self.chain, self.key = str(cert), str(chain), str(key)

    def entry(self):
        """As the proxy's configuration writes it."""
        return {"chain": self.chain, "key": self.key}


class Authority:
    """A CA with its own folder and database; `issuer` makes it an intermediate."""

    def __init__(self, folder, name, issuer=None, kind="ec"):
        self.name, self.issuer, self.folder = name, issuer, folder / name
        self.folder.mkdir()
        for file, text in (("index.txt", ""), ("serial", "1000\n"), ("crlnumber", "01\n")):
            (self.folder / file).write_text(text)
        self._cnf = self.folder / "ca.cnf"
        self._cnf.write_text(_CNF.format(dir=self.folder))
        self.cert, key = self.folder / "ca.pem", self.folder / "ca.key"
        subject = f"/CN=test {name}"
        if issuer is None:
            openssl("req", "-x509", "-config", self._cnf, "-extensions", "ca_extensions", "-newkey", *_KINDS[kind],
                    "-noenc", "-keyout", key, "-out", self.cert, "-subj", subject, "-days", "30")  # fmt: skip
        else:
            issuer._sign(key, self.cert, subject, ["-extfile", self._cnf, "-extensions", "ca_extensions"], kind)
        self.cert = str(self.cert)

    def _sign(self, key, cert, subject, extensions, kind, first_day=-1, last_day=30):
        request = cert.with_suffix(".csr")
        openssl("req", "-config", self._cnf, "-new", "-newkey", *_KINDS[kind], "-noenc", "-keyout", key,
                "-out", request, "-subj", subject)  # fmt: skip
        openssl("ca", "-batch", "-notext", "-config", self._cnf, "-in", request, "-out", cert,
                "-startdate", _stamp(first_day), "-enddate", _stamp(last_day), *extensions)  # fmt: skip

    def leaf(self, common_name, names=(), *, kind="ec", file=None, client=False, first_day=-1, last_day=30):
        """A certificate for `names` (DNS names or IP addresses; the common name when none are given)."""
        stem = self.folder / (file or f"{common_name.replace('*', '_').replace(' ', '_')}-{kind}")
        key, cert, chain = stem.with_suffix(".key"), stem.with_suffix(".crt"), stem.with_suffix(".pem")
        alternatives = [
            f"IP:{name}" if name.replace(".", "").isdigit() or ":" in name else f"DNS:{name}"
            for name in (names or ([] if client else [common_name]))
        ]
        lines = ["basicConstraints = CA:FALSE", f"extendedKeyUsage = {'clientAuth' if client else 'serverAuth'}"]
        if alternatives:
            lines.append("subjectAltName = " + ",".join(alternatives))
        extensions = stem.with_suffix(".ext")
        extensions.write_text("\n".join(lines) + "\n")
        self._sign(key, cert, f"/O=Trial/CN={common_name}", ["-extfile", extensions], kind, first_day, last_day)
        above, text = self, cert.read_text()
        while above.issuer is not None:
            text += pathlib.Path(above.cert).read_text()
            above = above.issuer
        chain.write_text(text)
        return Certificate(cert, chain, key)

    def revoke(self, certificate):
        openssl("ca", "-config", self._cnf, "-revoke", certificate.cert)

    def crl(self, file, first_day=-1, last_day=30):
        """A revocation list of this authority as it is now, valid between those days."""
        path = self.folder / file
        openssl("ca", "-config", self._cnf, "-gencrl", "-out", path,
                "-crl_lastupdate", _stamp(first_day), "-crl_nextupdate", _stamp(last_day))  # fmt: skip
        return str(path)


@functools.cache
def folder():
    """A folder for this process's certificates, gone with it."""
    directory = tempfile.TemporaryDirectory(prefix="tlsproxy-certs-")
    atexit.register(directory.cleanup)
    return pathlib.Path(directory.name)


@functools.cache
def root():
    return Authority(folder(), "root")


@functools.cache
def server():
    """What most tests' listeners show: for front.test and every name below it, and the loopback."""
    return root().leaf("front.test", ["front.test", "*.front.test", "example.com", "localhost", "127.0.0.1"])


@functools.cache
def internal():
    """What TLS backends show."""
    return root().leaf("backend.test", ["backend.test"])


@functools.cache
def clients():
    """The authority of client certificates."""
    return Authority(folder(), "clients")


@functools.cache
def alice():
    return clients().leaf("alice", client=True)


def client_context(ca=None, *, certificate=None, alpn=(), version=None, verify=True):
    """An ssl context that trusts `ca` (a path; the root by default) and reports truncation as such."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    if verify:
        context.load_verify_locations(ca or root().cert)
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate.chain, certificate.key)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


def server_context(certificate=None, *, alpn=(), client_ca=None):
    certificate = certificate or internal()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    context.load_cert_chain(certificate.chain, certificate.key)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
