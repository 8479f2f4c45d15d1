"""Real programs through the proxy, each compared with what it does without one."""

import hashlib
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import textwrap
import threading
import unittest

import certs
import modes
from backends import free_port
from harness import PATIENCE, EndToEnd, scaled, until

MIB = 1024 * 1024


class WithPrograms(EndToEnd):
    """Servers run in a folder of their own and are ended by their pid."""

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="tlsproxy-e2e-")))
        self.folder.chmod(0o755)

    def need(self, *names):
        """The programs' paths, or a skipped test that names what is missing."""
        paths = []
        for name in names:
            search = os.environ["PATH"] + ":/usr/sbin:/sbin"
            found = shutil.which(name, path=search)
            if found is None:
                self.skipTest(f"the program {name} is not installed")
            paths.append(found)
        return paths

    def serve(self, command, port, end=signal.SIGTERM, **options):
        """Starts a server and waits until its port answers."""
        log = open(self.folder / f"{pathlib.Path(command[0]).name}.log", "ab")
        self.addCleanup(log.close)
        server = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=log, stderr=log, **options)

        def finish():
            server.send_signal(end)
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()

        self.addCleanup(finish)

        def answers():
            if server.poll() is not None:
                raise AssertionError(f"{command[0]} ended: " + pathlib.Path(log.name).read_text()[-2000:])
            with socket.socket() as sock:
                return sock.connect_ex(("127.0.0.1", port)) == 0

        until(answers, f"{command[0]} to listen")
        return server

    def run_client(self, command, text=None, seconds=60, **options):
        done = subprocess.run(list(map(str, command)), input=text, capture_output=True, text=True,
                              timeout=seconds * PATIENCE, **options)  # fmt: skip
        self.assertEqual(done.returncode, 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout


class OpenSsl(WithPrograms):
    def test_s_client_and_s_server_understand_each_other_relayed_and_passed_through(self):
        (openssl,) = self.need("openssl")
        port, certificate = free_port(), certs.internal()
        self.serve([openssl, "s_server", "-accept", f"127.0.0.1:{port}", "-cert", certificate.chain, "-key",
                    certificate.key, "-rev", "-quiet"], port)  # fmt: skip
        for mode, name in ((modes.TLS_TO_TLS, "front.test"), (modes.PASSTHROUGH, "backend.test")):
            proxy = self.start_proxy(mode.configuration(f"127.0.0.1:{port}"))
            for version in ("-tls1_2", "-tls1_3"):
                with self.subTest(mode=mode.name, version=version):
                    client = subprocess.Popen(
                        [openssl, "s_client", "-connect", f"127.0.0.1:{proxy.port()}", "-servername", name, version,
                         "-CAfile", certs.root().cert, "-verify_return_error", "-verify_hostname", name, "-quiet"],
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                    )  # fmt: skip
                    with client:
                        client.stdin.write("stressed\n")
                        client.stdin.flush()
                        self.assertEqual(client.stdout.readline(), "desserts\n")
                        client.kill()


class CurlAndNginx(WithPrograms):
    LARGE = scaled("E2E_CURL_BYTES", 1024 * MIB, 128 * MIB)

    def start_nginx(self):
        nginx, self.curl = self.need("nginx", "curl")
        content = self.folder / "content"
        content.mkdir()
        self.sums = {}
        block = os.urandom(MIB)
        for name, size in (("small", MIB), ("large", self.LARGE)):
            digest = hashlib.sha256()
            with open(content / name, "wb") as file:
                for turn in range(size // MIB):
                    piece = turn.to_bytes(8, "big") + block[8:]
                    file.write(piece)
                    digest.update(piece)
            self.sums[name] = digest.hexdigest()
        self.nginx_port = free_port()
        user = "user root;" if os.geteuid() == 0 else ""
        (self.folder / "nginx.conf").write_text(textwrap.dedent(f"""\
            {user}
            daemon off;
            master_process off;
            pid {self.folder}/nginx.pid;
            error_log {self.folder}/error.log;
            events {{}}
            http {{
              access_log off;
              client_body_temp_path {self.folder}/body;
              proxy_temp_path {self.folder}/proxy;
              fastcgi_temp_path {self.folder}/fastcgi;
              uwsgi_temp_path {self.folder}/uwsgi;
              scgi_temp_path {self.folder}/scgi;
              sendfile on;
              client_max_body_size 0;
              server {{
                listen 127.0.0.1:{self.nginx_port};
                root {content};
                location /upload {{ dav_methods PUT; }}
              }}
            }}
            """))  # fmt: skip
        self.serve([nginx, "-p", self.folder, "-c", self.folder / "nginx.conf"], self.nginx_port)

    def fetch(self, proxy, name, *options):
        """The sha256 of what curl gets."""
        command = [self.curl, "-sS", "--fail", "--cacert", certs.root().cert, "--resolve",
                   f"front.test:{proxy.port()}:127.0.0.1", *options,
                   f"https://front.test:{proxy.port()}/{name}"]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
            digest = hashlib.file_digest(client.stdout, "sha256").hexdigest()
        self.assertEqual(client.returncode, 0)
        return digest

    def test_bodies_of_1_mib_and_1_gib_arrive_whole(self):
        self.start_nginx()
        proxy = self.start_proxy(modes.TERMINATE.configuration(f"127.0.0.1:{self.nginx_port}"))
        for options in (("--tlsv1.3",), ("--tls-max", "1.2")):
            self.assertEqual(self.fetch(proxy, "small", *options), self.sums["small"])
        self.assertEqual(self.fetch(proxy, "large"), self.sums["large"])

    def test_many_curls_at_once_each_get_their_own_body(self):
        self.start_nginx()
        proxy = self.start_proxy({"workers": 2, **modes.TERMINATE.configuration(f"127.0.0.1:{self.nginx_port}")})
        results = []
        threads = [threading.Thread(target=lambda: results.append(self.fetch(proxy, "small"))) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [self.sums["small"]] * 20)


class Redis(WithPrograms):
    def test_redis_cli_over_tls_reaches_a_plain_redis_server(self):
        server, cli = self.need("redis-server", "redis-cli")
        port = free_port()
        self.serve([server, "--port", port, "--bind", "127.0.0.1", "--dir", self.folder, "--save", "",
                    "--appendonly", "no", "--daemonize", "no"], port)  # fmt: skip
        proxy = self.start_proxy(modes.TERMINATE.configuration(f"127.0.0.1:{port}"))
        client = [cli, "-h", "127.0.0.1", "-p", proxy.port(), "--tls", "--cacert", certs.root().cert,
                  "--sni", "front.test"]  # fmt: skip
        self.assertEqual(self.run_client([*client, "PING"]).strip(), "PONG")
        value = "v" * 300_000
        self.assertEqual(self.run_client([*client, "-x", "SET", "key"], value).strip(), "OK")
        self.assertEqual(self.run_client([*client, "GET", "key"]).rstrip("\n"), value)
        commands = "".join(f"SET k{i} {i}\nINCR k{i}\n" for i in range(500))
        answers = self.run_client(client, commands).split()
        self.assertEqual(answers[1::2], [str(i + 1) for i in range(500)])
        until(lambda: len(proxy.sessions()) == 4, "the access lines")


class Mosquitto(WithPrograms):
    def test_what_is_published_over_tls_comes_to_a_subscriber_over_tls(self):
        broker, publish, subscribe = self.need("mosquitto", "mosquitto_pub", "mosquitto_sub")
        port = free_port()
        conf = self.folder / "mosquitto.conf"
        user = "user root\n" if os.geteuid() == 0 else ""
        conf.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n{user}")
        self.serve([broker, "-c", conf], port)
        proxy = self.start_proxy(modes.TERMINATE.configuration(f"127.0.0.1:{port}"))
        tls = ["-h", "127.0.0.1", "-p", proxy.port(), "--cafile", certs.root().cert, "-q", "1"]
        with subprocess.Popen([*map(str, [subscribe, *tls, "-t", "trial/#", "-C", "3", "-W", "20"])],
                              stdout=subprocess.PIPE, text=True) as subscriber:  # fmt: skip
            for number in range(3):  # retained: it does not matter who is there first
                self.run_client([publish, *tls, "-r", "-t", f"trial/{number}", "-m", f"message {number}"])
            output = subscriber.stdout.read()
        self.assertEqual(subscriber.returncode, 0, output)
        self.assertEqual(sorted(output.splitlines()), ["message 0", "message 1", "message 2"])


class SshBesideTls(WithPrograms):
    def test_one_port_serves_ssh_and_tls_by_first_bytes(self):
        sshd, ssh, keygen = self.need("sshd", "ssh", "ssh-keygen")
        account = pwd.getpwuid(os.geteuid())
        if account.pw_shell.endswith(("nologin", "false")):
            self.skipTest(f"the account {account.pw_name} has no shell to log in with")
        port = free_port()
        for name in ("host", "user"):
            self.run_client([keygen, "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name])
        authorized = self.folder / "authorized"
        authorized.write_text((self.folder / "user.pub").read_text())
        (self.folder / "sshd_config").write_text(textwrap.dedent(f"""\
            Port {port}
            ListenAddress 127.0.0.1
            HostKey {self.folder}/host
            AuthorizedKeysFile {authorized}
            PidFile {self.folder}/sshd.pid
            StrictModes no
            UsePAM no
            PasswordAuthentication no
            PermitRootLogin prohibit-password
            """))  # fmt: skip
        if os.geteuid() == 0:
            pathlib.Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd's privilege separation wants it
        self.serve([sshd, "-D", "-e", "-f", self.folder / "sshd_config"], port)
        (self.folder / "known").write_text("tlsproxy-trial " + (self.folder / "host.pub").read_text())
        web = self.enterContext(modes.PASSTHROUGH.backend(lambda stream: stream.send(b"web")))
        proxy = self.start_proxy({
            "listeners": [{"name": "front", "bind": "127.0.0.1:0", "tls": "passthrough", "timeouts": {"preread": "2s"},
                           "routes": [{"sni": "backend.test", "to": "web"}, {"to": "ssh"}]}],
            "backends": {"web": [web.address], "ssh": [f"127.0.0.1:{port}"]},
        })  # fmt: skip
        client = [ssh, "-F", "none", "-p", proxy.port(), "-i", self.folder / "user", "-o", "BatchMode=yes",
                  "-o", "HostKeyAlias=tlsproxy-trial", "-o", f"UserKnownHostsFile={self.folder}/known",
                  "-o", "IdentitiesOnly=yes", f"{account.pw_name}@127.0.0.1"]  # fmt: skip
        self.assertEqual(self.run_client([*client, "echo", "through the proxy"]), "through the proxy\n")
        data = "0123456789abcdef" * 65536
        self.assertEqual(self.run_client([*client, "sha256sum"], data)[:64], hashlib.sha256(data.encode()).hexdigest())
        browser = modes.PASSTHROUGH.connect(proxy)
        self.assertEqual(browser.read_to_end().head, b"web")
        browser.close()
        self.assertEqual(proxy.session(route="web")["sni"], "backend.test")
        until(lambda: len(proxy.sessions(route="ssh")) == 2, "the lines of both ssh sessions")


class Postgres(WithPrograms):
    def find(self, name):
        for folder in sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
            if (folder / name).exists():
                return str(folder / name)
        return self.need(name)[0]

    def test_psql_works_through_a_plain_listener(self):
        initdb, postgres, psql = map(self.find, ("initdb", "postgres", "psql"))
        options = {}
        if os.geteuid() == 0:
            try:
                account = pwd.getpwnam("postgres")
            except KeyError:
                self.skipTest("postgres does not run as root, and there is no user postgres")
            options = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        data = self.folder / "data"
        data.mkdir(mode=0o700)
        if options:
            os.chown(data, options["user"], options["group"])
        self.run_client([initdb, "-D", data, "-U", "trial", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"],
                        cwd="/", **options)  # fmt: skip
        port = free_port()
        self.serve([postgres, "-D", data, "-p", port, "-h", "127.0.0.1", "-k", "", "-F"], port, signal.SIGINT,
                   cwd="/", **options)  # fmt: skip
        proxy = self.start_proxy(modes.PLAIN.configuration(f"127.0.0.1:{port}"))
        where = f"host=127.0.0.1 port={proxy.port()} user=trial dbname=postgres sslmode=disable"

        def query(text):
            return self.run_client([psql, "-X", "-A", "-t", "-d", where, "-c", text])

        until(lambda: subprocess.run([psql, "-X", "-d", where, "-c", "select 1"], capture_output=True).returncode == 0,
              "the server to accept queries", 20, step=0.1)  # fmt: skip
        self.assertEqual(query("select 6 * 7"), "42\n")
        rows = query("select string_agg(md5(i::text), '') from generate_series(1, 20000) i").strip()
        expected = "".join(hashlib.md5(str(i).encode()).hexdigest() for i in range(1, 20001))
        self.assertEqual(rows, expected)
        copied = self.run_client([psql, "-X", "-q", "-d", where, "-c", "create table t (n int)", "-c",
                                  "copy t from stdin", "-c", "copy (select sum(n), count(*) from t) to stdout"],
                                 "".join(f"{i}\n" for i in range(100_000)))  # fmt: skip
        self.assertEqual(copied.split(), ["4999950000", "100000"])


class ServerSpeaksFirst(WithPrograms):
    def test_a_dialogue_that_the_server_opens_runs_its_course(self):
        def smtp(stream):
            stream.send(b"220 mail.test ESMTP\r\n")
            said = []
            while line := stream.recv():
                said.append(line)
                stream.send(b"221 bye\r\n" if line.startswith(b"QUIT") else b"250 ok\r\n")
                if line.startswith(b"QUIT"):
                    stream.finish()
                    break
            return said

        for mode in (modes.PLAIN, modes.TERMINATE, modes.TLS_TO_TLS):
            with self.subTest(mode=mode.name):
                backend = self.enterContext(mode.backend(smtp))
                proxy = self.start_proxy(mode.configuration(backend.address))
                client = self.opened(mode.connect(proxy))
                self.assertEqual(client.read_exactly(21), b"220 mail.test ESMTP\r\n")
                for line in (b"EHLO client.test\r\n", b"NOOP\r\n"):
                    client.send(line)
                    self.assertEqual(client.read_exactly(8), b"250 ok\r\n")
                client.send(b"QUIT\r\n")
                self.assertEqual(client.read_to_end().head, b"221 bye\r\n")
                client.finish()
                self.assertEqual(len(backend.outcome()), 3)


if __name__ == "__main__":
    unittest.main()
