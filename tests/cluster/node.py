"""A Kubernetes node and its control plane, in the network and mount namespace of this process.

Everything listens on the bridge of the pods, whose address is the node's. DNS is CoreDNS at that address."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))
from certificates import openssl  # noqa: E402

ADDRESS = "10.244.0.1"  # of the bridge
POD_NETWORK = "10.244.0.0/24"
SERVICE_NETWORK = "10.96.0.0/16"
API = f"https://{ADDRESS}:6443"
# The kubelet sets these; it gets files in their place.
HOST_SETTINGS = ["vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
                 "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"]

CONTAINERD = """version = 2
root = "{work}/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "local/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{work}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "/usr/sbin/runc"
"""
NETWORK = {"cniVersion": "0.4.0", "name": "pods", "plugins": [
    {"type": "bridge", "bridge": "pods", "isGateway": True, "ipMasq": False, "hairpinMode": True,
     "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": POD_NETWORK}]],
              "routes": [{"dst": "0.0.0.0/0"}]}}]}
# metrics-server runs on the node, outside the cluster.
METRICS_SERVER = [
    {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"},
     "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
              "insecureSkipTLSVerify": True, "service": {"namespace": "kube-system", "name": "metrics-server"}}},
    {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "kube-system", "name": "metrics-server"},
     "spec": {"ports": [{"name": "https", "port": 443, "targetPort": 4443}]}},
    {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
     "metadata": {"namespace": "kube-system", "name": "metrics-server",
                  "labels": {"kubernetes.io/service-name": "metrics-server"}},
     "ports": [{"name": "https", "port": 4443}],
     "endpoints": [{"addresses": [ADDRESS], "conditions": {"ready": True}}]}]


def await_(what, condition, seconds=60, period=0.2):
    """Waits until condition() is true and returns its value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(period)
    return value


def cgroup(work):
    """The name of the pods' cgroup, which the kubelet takes for its own."""
    return "posenc-" + str(work).strip("/").replace("/", "-")


def is_ready(thing):
    """Whether a node or a pod has the condition Ready."""
    conditions = thing["status"].get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


class Node:
    """Starts when it is made. `work` is an empty directory, `programs` the one of build-kubernetes."""

    def __init__(self, work, programs, images):
        self.work, self._programs, self._children = work, programs, {}
        self.kubeconfig = work / "kubeconfig"
        (work / "log").mkdir()
        self._isolate()
        self._certify()
        self._start("etcd", "etcd", "--data-dir", work / "etcd", "--unsafe-no-fsync",
                    "--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379")
        self._start_control_plane()
        self._start_kubelet(images)
        self._start_addons()
        await_("the node is ready", lambda: self._node_is_ready())

    def kubectl(self, *arguments, check=True, stdin=None):
        return subprocess.run(["kubectl", "--kubeconfig", self.kubeconfig, *map(str, arguments)], check=check,
                              text=True, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout

    def get(self, *arguments):
        return json.loads(self.kubectl("get", "--output=json", *arguments))

    def answers(self, path):
        return subprocess.run(["kubectl", "--kubeconfig", self.kubeconfig, "get", "--raw", path],
                              capture_output=True).returncode == 0

    def apply(self, *objects):
        self.kubectl("apply", "--filename=-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def log_tails(self):
        for log in sorted((self.work / "log").iterdir()):
            tail = log.read_text(errors="replace").splitlines()[-15:]
            print(f"--- {log.name}", *tail, sep="\n", file=sys.stderr)

    def _start(self, name, program, *arguments):
        found = self._programs / program
        with open(self.work / "log" / name, "wb") as log:
            self._children[name] = subprocess.Popen([found if found.exists() else program, *map(str, arguments)],
                                                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.work)

    def _await(self, name, condition):
        def ready():
            if (code := self._children[name].poll()) is not None:
                raise RuntimeError(f"{name} ended with {code}")
            return condition()
        await_(f"{name} is ready", ready)

    def _isolate(self):
        """Mounts /run and /var/log, makes the bridge, and keeps the kubelet from changing the machine's settings."""
        def run(*command):
            subprocess.run(command, check=True)
        for directory in ("/run", "/var/log"):
            run("mount", "-t", "tmpfs", "tmpfs", directory)
        for setting in HOST_SETTINGS:
            path = Path("/proc/sys") / setting
            if path.exists():
                copy = self.work / "settings" / setting
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(path.read_text())
                run("mount", "--bind", copy, path)
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "pods", "type", "bridge")
        run("ip", "address", "add", f"{ADDRESS}/24", "dev", "pods")
        run("ip", "link", "set", "pods", "up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        (self.work / "cni").mkdir()
        (self.work / "cni" / "pods.conflist").write_text(json.dumps(NETWORK))

    def _certify(self):
        pki = self.work / "pki"
        pki.mkdir()
        new_key = ("-newkey", "rsa:2048", "-nodes")
        openssl("req", "-x509", *new_key, "-days", 2, "-subj", "/CN=ca", "-keyout", pki / "ca.key", "-out",
                pki / "ca.crt")
        openssl("genrsa", "-out", pki / "accounts.key", 2048)
        openssl("rsa", "-in", pki / "accounts.key", "-pubout", "-out", pki / "accounts.pub")
        names = pki / "names"
        names.write_text(f"subjectAltName=IP:{ADDRESS},IP:127.0.0.1,IP:10.96.0.1,DNS:kubernetes.default.svc\n")
        for name, subject in (("server", "/CN=kube-apiserver"), ("admin", "/O=system:masters/CN=admin"),
                              ("front", "/CN=front-proxy")):
            openssl("req", *new_key, "-keyout", pki / f"{name}.key", "-out", pki / f"{name}.csr", "-subj", subject)
            openssl("x509", "-req", "-in", pki / f"{name}.csr", "-CA", pki / "ca.crt", "-CAkey", pki / "ca.key",
                    "-CAcreateserial", "-out", pki / f"{name}.crt", "-days", 2, "-extfile", names)
        self.kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "node",
            "clusters": [{"name": "node", "cluster": {"server": API, "certificate-authority": str(pki / "ca.crt")}}],
            "users": [{"name": "admin", "user": {"client-certificate": str(pki / "admin.crt"),
                                                 "client-key": str(pki / "admin.key")}}],
            "contexts": [{"name": "node", "context": {"cluster": "node", "user": "admin"}}]}))

    def _start_control_plane(self):
        pki = self.work / "pki"
        self._start(
            "apiserver", "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--secure-port=6443",
            "--bind-address=0.0.0.0", f"--advertise-address={ADDRESS}", f"--service-cluster-ip-range={SERVICE_NETWORK}",
            "--authorization-mode=RBAC", "--enable-aggregator-routing=true", f"--tls-cert-file={pki}/server.crt",
            f"--tls-private-key-file={pki}/server.key", f"--client-ca-file={pki}/ca.crt",
            f"--kubelet-client-certificate={pki}/admin.crt", f"--kubelet-client-key={pki}/admin.key",
            f"--service-account-key-file={pki}/accounts.pub", f"--service-account-signing-key-file={pki}/accounts.key",
            "--service-account-issuer=https://kubernetes.default.svc", f"--requestheader-client-ca-file={pki}/ca.crt",
            "--requestheader-allowed-names=front-proxy", "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={pki}/front.crt", f"--proxy-client-key-file={pki}/front.key")
        self._await("apiserver", lambda: self.answers("/readyz"))
        self._start(
            "controllers", "kube-controller-manager", f"--kubeconfig={self.kubeconfig}", "--leader-elect=false",
            f"--service-account-private-key-file={pki}/accounts.key", f"--root-ca-file={pki}/ca.crt",
            "--horizontal-pod-autoscaler-sync-period=5s", "--horizontal-pod-autoscaler-initial-readiness-delay=5s",
            "--horizontal-pod-autoscaler-cpu-initialization-period=20s")
        self._start("scheduler", "kube-scheduler", f"--kubeconfig={self.kubeconfig}", "--leader-elect=false")

    def _start_kubelet(self, images):
        configuration = self.work / "containerd.toml"
        configuration.write_text(CONTAINERD.format(work=self.work))
        self._start("containerd", "containerd", "--config", configuration)
        ctr = ("ctr", "--address", "/run/containerd.sock", "--namespace", "k8s.io")
        self._await("containerd", lambda: subprocess.run([*ctr, "version"], capture_output=True).returncode == 0)
        for image in images:
            subprocess.run([*ctr, "images", "import", image], check=True, stdout=subprocess.DEVNULL)
        for controller in Path("/sys/fs/cgroup").iterdir():
            if (controller / "cgroup.procs").exists():
                (controller / cgroup(self.work)).mkdir()
        resolve = self.work / "resolv.conf"
        resolve.write_text("")
        configuration = self.work / "kubelet.yaml"
        configuration.write_text(json.dumps({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True},
                               "x509": {"clientCAFile": str(self.work / "pki" / "ca.crt")}},
            "address": ADDRESS, "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{cgroup(self.work)}", "failSwapOn": False,
            "failCgroupV1": False, "containerRuntimeEndpoint": "unix:///run/containerd.sock", "evictionHard": {},
            "makeIPTablesUtilChains": False, "clusterDNS": [ADDRESS], "clusterDomain": "cluster.local",
            "resolvConf": str(resolve), "syncFrequency": "10s",
            # A container that is killed again and again restarts after a second, not after up to five minutes.
            "featureGates": {"KubeletCrashLoopBackOffMax": True},
            "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}}))
        self._start("kubelet", "kubelet", f"--config={configuration}", f"--kubeconfig={self.kubeconfig}",
                    f"--root-dir={self.work}/kubelet", "--hostname-override=node", f"--node-ip={ADDRESS}")

    def _start_addons(self):
        (self.work / "Corefile").write_text(
            f"cluster.local:53 {{\n  ready {ADDRESS}:8181\n  errors\n"
            f"  kubernetes cluster.local {{\n    kubeconfig {self.kubeconfig} node\n  }}\n}}\n")
        self._start("coredns", "coredns", "-conf", self.work / "Corefile")
        configuration = self.work / "proxy.yaml"
        configuration.write_text(json.dumps({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "iptables",
            "clientConnection": {"kubeconfig": str(self.kubeconfig)}, "hostnameOverride": "node",
            # Pods of one bridge answer each other directly, so their connections to a Service must come from the node.
            "iptables": {"masqueradeAll": True}, "conntrack": {"maxPerCore": 0}}))
        self._start("proxy", "kube-proxy", f"--config={configuration}")
        self.apply(*METRICS_SERVER)
        self._start("metrics-server", "metrics-server", f"--kubeconfig={self.kubeconfig}",
                    f"--authentication-kubeconfig={self.kubeconfig}", f"--authorization-kubeconfig={self.kubeconfig}",
                    "--kubelet-insecure-tls", "--kubelet-preferred-address-types=InternalIP",
                    "--metric-resolution=10s", "--kubelet-request-timeout=5s", "--secure-port=4443",
                    f"--cert-dir={self.work}/metrics-server")

    def _node_is_ready(self):
        nodes = self.get("nodes")["items"]
        return nodes and is_ready(nodes[0])


def remove_cgroups(work):
    """Removes what pods that were killed leave behind."""
    for controller in Path("/sys/fs/cgroup").iterdir():
        for directory, _, _ in os.walk(controller / cgroup(work), topdown=False):
            os.rmdir(directory)


if __name__ == "__main__" and sys.argv[1:2] == ["remove-cgroups"]:
    remove_cgroups(Path(sys.argv[2]))
