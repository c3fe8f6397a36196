"""scenarios.py WORK PROGRAMS BUILD CHART IMAGE PAUSE [--short]: the checks of deploy/check-cluster, in its namespaces.

Each scenario does something to the servers of the chart while a C++ client calls them from outside their pods. None of
its calls may fail. Ends with a table, and with the line "N passed, M failed"."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from node import Node, await_, is_ready

from certificates import Authority

NAMESPACE = "encodings"
RELEASE = "posenc"
HEADLESS = f"{RELEASE}-headless.{NAMESPACE}.svc.cluster.local"
SELECTOR = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=server"
RATE = 40
VALUES = {
    "image": {"repository": "local/posenc-server", "tag": "check", "pullPolicy": "Never"},
    "replicaCount": 3,
    "resources": {"requests": {"cpu": "200m", "memory": "64Mi"}, "limits": {"cpu": 1, "memory": "256Mi"}},
    "tls": {"secretName": "posenc-server"},
}


class Caller:
    """cluster-caller, and the figures of its calls."""

    def __init__(self, build, authority):
        # gRPC's name for a name and the DNS server to ask.
        address = f"dns://10.244.0.1:53/{HEADLESS}:50051"
        self._process = subprocess.Popen(
            [build / "tests" / "cluster-caller", address, str(RATE), authority.certificate], stdout=subprocess.PIPE,
            text=True)

    def end(self):
        self._process.send_signal(signal.SIGTERM)
        return json.loads(self._process.communicate(timeout=90)[0])


class Check:
    def __init__(self, work, programs, build, chart, images, short):
        self.short, self.work, self.build, self.chart, self.helm = short, work, build, chart, programs / "helm"
        self.rows, self.passed, self.failed = [], 0, 0
        self.node = Node(work, programs, images)
        self.authority = Authority(work / "authority")
        self.secrets = 0

    # The release.

    def write_certificate(self):
        """Makes a certificate and puts it into the release's Secret. Returns its serial number."""
        self.secrets += 1
        names = [HEADLESS, f"{RELEASE}-headless", RELEASE]
        certificate, key = self.authority.issue(f"server-{self.secrets}", names=names)
        self.node.apply({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
                         "metadata": {"namespace": NAMESPACE, "name": "posenc-server"},
                         "stringData": {"tls.crt": certificate.read_text(), "tls.key": key.read_text(),
                                        "ca.crt": self.authority.certificate.read_text()}})
        return re.search("serial=(.*)", run("openssl", "x509", "-noout", "-serial", "-in", certificate))[1]

    def upgrade(self, **values):
        path = self.work / "values.json"
        path.write_text(json.dumps({**VALUES, **values}))
        run(self.helm, "upgrade", "--install", RELEASE, self.chart, "--namespace", NAMESPACE, "--create-namespace",
            "--kubeconfig", self.node.kubeconfig, "--values", path, "--wait", "--timeout", "5m")
        self.settled()

    def pods(self):
        return self.node.get("pods", "--namespace", NAMESPACE, "--selector", SELECTOR)["items"]

    def ready_pods(self):
        return [pod for pod in self.pods() if "deletionTimestamp" not in pod["metadata"] and is_ready(pod)]

    def settled(self, count=None):
        """Waits until there are no pods but ready ones, and DNS and clients have had time to see it."""
        def are():
            pods = self.pods()
            return len(self.ready_pods()) == len(pods) and (count is None or len(pods) == count) and pods
        pods = await_("the servers are ready", are, 180, 0.5)
        time.sleep(2)
        return pods

    def scale(self, count):
        self.node.kubectl("scale", "deployment", RELEASE, "--namespace", NAMESPACE, f"--replicas={count}")

    # Checks.

    def check(self, name, what):
        """Runs what(), which raises an exception if it fails."""
        try:
            said = what()
        except Exception as error:  # one scenario must not hide the others
            self.failed += 1
            said = [getattr(error, "stdout", None), getattr(error, "stderr", None)]
            print(f"FAILED: {name}: {error}", *filter(None, said), sep="\n", flush=True)
            return
        self.passed += 1
        print(f"passed: {name}" + (f": {said}" if said else ""), flush=True)

    def under_load(self, name, what):
        """Runs what() while the client calls; it returns what happened. Then the calls' figures are checked."""
        def body():
            self.settled()
            caller = Caller(self.build, self.authority)
            begin, events, problem = time.monotonic(), "", None
            try:
                time.sleep(3)
                events = what()
                time.sleep(5)
            except Exception as error:
                problem = error
            seconds = time.monotonic() - begin
            figures = caller.end()
            self.rows.append((name, events, seconds, figures))
            if problem:
                raise problem
            assert figures["failed"] == 0 and figures["wrong"] == 0, figures
            assert figures["calls"] > 0.8 * RATE * (seconds - 1), figures
            return f"{events}; {figures['calls']} calls, {figures['streams']} of them streams, p50 " \
                   f"{figures['p50_ms']:.1f} ms, p99 {figures['p99_ms']:.1f} ms, longest {figures['max_ms']:.0f} ms"
        self.check(name, body)

    # What happens.

    def posenc(self, command, pods):
        """The command line of `posenc COMMAND` at the servers of these pods."""
        addresses = ",".join(f"{pod['status']['podIP']}:50051" for pod in pods)
        return [str(self.build / "bin" / "posenc"), command, "--server", addresses, "--tls-ca",
                str(self.authority.certificate), "--tls-server-name", HEADLESS]

    def helm_test(self):
        run(self.helm, "test", RELEASE, "--namespace", NAMESPACE, "--kubeconfig", self.node.kubeconfig)

    def nothing(self):
        time.sleep(10)
        return "nothing happens"

    def each_ten_seconds(self, seconds, event):
        end = time.monotonic() + seconds
        count = 0
        while time.monotonic() < end:
            next_ = time.monotonic() + 10
            pods = sorted(self.ready_pods(), key=lambda pod: pod["metadata"]["name"])
            assert pods, "no server is ready"
            event(pods[count % len(pods)])
            count += 1
            time.sleep(max(0, next_ - time.monotonic()))
        return count

    def kills(self):
        before = sum(restarts(pod) for pod in self.pods())
        count = self.each_ten_seconds(60 if self.short else 600, kill)
        after = sum(restarts(pod) for pod in self.settled(3))
        assert after - before >= count, (before, after, count)
        return f"{count} servers killed (SIGKILL), restarted in their pods"

    def lost_pods(self):
        def lose(pod):
            kill(pod)
            self.node.kubectl("delete", "pod", pod["metadata"]["name"], "--namespace", NAMESPACE, "--force",
                              "--grace-period=0")
        before = names(self.pods())
        count = self.each_ten_seconds(60, lose)
        assert not before & names(self.settled(3))
        return f"{count} servers killed, their pods replaced"

    def rolling_update(self):
        before = names(self.pods())
        self.node.kubectl("rollout", "restart", f"deployment/{RELEASE}", "--namespace", NAMESPACE)
        self.node.kubectl("rollout", "status", f"deployment/{RELEASE}", "--namespace", NAMESPACE, "--timeout=5m")
        assert not before & names(self.settled(3))
        return "3 servers replaced"

    def scaling(self):
        self.scale(4)
        self.settled(4)
        time.sleep(5)
        self.scale(1)
        self.settled(1)
        return "1 to 4 servers and back"

    def rotation(self):
        serial = self.write_certificate()

        def served():
            command = "openssl s_client -connect $0:50051 </dev/null 2>/dev/null | openssl x509 -noout -serial"
            return all(serial in run("bash", "-c", command, pod["status"]["podIP"]) for pod in self.ready_pods())
        await_("all servers have the new certificate", served, 120, 1)
        # New connections must work, too.
        run(*self.posenc("health", self.ready_pods()[:1]))
        return "all servers present the new certificate"

    def out_of_memory(self):
        pod = self.ready_pods()[0]
        # Answers that together are larger than the pod's memory, which the wrong setting admits.
        subprocess.run([*self.posenc("load", [pod]), "--method", "GenerateTable", "--tokens", "262144", "--dtype",
                        "fp32", "--concurrency", "16", "--duration", "10s", "--quiet"], capture_output=True,
                       timeout=120)

        def killed():
            found = self.node.get("pod", pod["metadata"]["name"], "--namespace", NAMESPACE)
            return found["status"]["containerStatuses"][0].get("lastState", {}).get("terminated", {}).get("reason")
        reason = await_("the container is killed", killed, 30)
        assert reason == "OOMKilled", reason
        return "1 server exceeded its memory limit (OOMKilled)"

    def readiness(self):
        pod = self.ready_pods()[0]
        ready = lambda: pod["metadata"]["name"] in names(self.ready_pods())  # noqa: E731
        # The kubelet no longer reaches the port of the probes; the server continues to serve calls.
        rule = ("INPUT", "--protocol", "tcp", "--dport", 9465, "--jump", "REJECT")
        firewall = ("nsenter", "--net", "--target", process_of(pod), "iptables", "--wait")
        run(*firewall, "--insert", *rule)
        try:
            await_("the pod is not ready", lambda: not ready(), 30)
            time.sleep(3)
        finally:
            run(*firewall, "--delete", *rule)
        await_("the pod is ready again", ready)
        return "1 server not ready, and ready again"

    def hang(self):
        pid = process_of(self.ready_pods()[0])
        os.kill(pid, signal.SIGSTOP)
        time.sleep(5)
        os.kill(pid, signal.SIGCONT)
        return "1 server does not run for 5 s (SIGSTOP)"

    def autoscaler(self):
        load = subprocess.Popen([*self.posenc("load", self.ready_pods()), "--tokens", "64", "--rate", "250",
                                 "--duration", "5m", "--quiet"], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)
        try:
            await_("there are more servers", lambda: len(self.ready_pods()) > 1, 150, 1)
            most = len(self.ready_pods())
        finally:
            load.send_signal(signal.SIGINT)
            load.wait(60)
        await_("there is one server again", lambda: len(self.pods()) == 1, 240, 1)
        return f"1 to {most} servers by processor time, and back to 1"

    def run(self):
        self.node.kubectl("create", "namespace", NAMESPACE)
        self.node.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
        self.write_certificate()
        self.check("helm install --wait", self.upgrade)
        self.check("helm test", self.helm_test)
        self.under_load("undisturbed", self.nothing)
        self.under_load("kills", self.kills)
        self.under_load("lost pods", self.lost_pods)
        self.under_load("rolling update", self.rolling_update)
        self.under_load("certificate rotation", self.rotation)
        self.under_load("readiness failure", self.readiness)
        self.under_load("hang", self.hang)
        self.check("helm upgrade to a setting that admits too much",
                   lambda: self.upgrade(settings={"log-format": "json", "max-in-flight-bytes": "8GiB"}))
        self.under_load("memory limit", self.out_of_memory)
        self.check("helm upgrade to one server", lambda: self.upgrade(replicaCount=1))
        self.under_load("scaling", self.scaling)
        self.check("helm upgrade to an autoscaler", lambda: self.upgrade(
            autoscaling={"enabled": True, "minReplicas": 1, "maxReplicas": 3, "scaleDownSeconds": 15}))
        self.under_load("autoscaler", self.autoscaler)
        print("\n| Scenario | What happened | Time | Calls | Streams among them | Failed | p50 | p99 | Longest |")
        print("|---|---|---|---|---|---|---|---|---|")
        for name, events, seconds, figures in self.rows:
            print(f"| {name} | {events} | {seconds:.0f} s | {figures['calls']:,} | {figures['streams']:,} | "
                  f"{figures['failed']} | {figures['p50_ms']:.1f} ms | {figures['p99_ms']:.1f} ms | "
                  f"{figures['max_ms']:.0f} ms |")
        print(f"\n{self.passed} passed, {self.failed} failed")


def run(*command):
    return subprocess.run([*map(str, command)], check=True, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT).stdout


def names(pods):
    return {pod["metadata"]["name"] for pod in pods}


def restarts(pod):
    return pod["status"]["containerStatuses"][0]["restartCount"]


def process_of(pod):
    """The process of the pod's server, which is in the cgroup of its container."""
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    for cgroup in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            if container in cgroup.read_text():
                return int(cgroup.parent.name)
        except OSError:  # it has ended
            pass
    raise ProcessLookupError(f"no process of {pod['metadata']['name']}")


def kill(pod):
    os.kill(process_of(pod), signal.SIGKILL)


def main(work, programs, build, chart, image, pause, *options):
    check = Check(Path(work), Path(programs), Path(build), chart, [image, pause], "--short" in options)
    try:
        check.run()
    finally:
        if check.failed:
            check.node.log_tails()
    return check.failed != 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
