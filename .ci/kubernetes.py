"""Validates the manifests of deploy/kubernetes. Then mistakes that this checker has to find.

Needs kubernetes-validate, which has the schemas of Kubernetes itself. Each manifest is checked as it is, and with the YAML in its comments.
"""

import pathlib
import re
import sys

import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "deploy/kubernetes"
# The label batch.kubernetes.io/job-name came with 1.27.
VERSIONS = ["1.27", "1.37"]
# Fields of a LeaderWorkerSet, and their values where those are few: api/leaderworkerset/v1/leaderworkerset_types.go of
# https://github.com/kubernetes-sigs/lws. TEMPLATE is a pod template of Kubernetes.
TEMPLATE = object()
LWS_SPEC = {
    "replicas": int,
    "startupPolicy": {"LeaderCreated", "LeaderReady"},
    "rolloutStrategy": {
        "type": {"RollingUpdate"},
        "rollingUpdateConfiguration": {"partition": int, "maxUnavailable": (int, str), "maxSurge": (int, str)},
    },
    "networkConfig": {"subdomainPolicy": {"Shared", "UniquePerReplica"}},
    "leaderWorkerTemplate": {
        "leaderTemplate": TEMPLATE,
        "workerTemplate": TEMPLATE,
        "size": int,
        "restartPolicy": {"RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"},
        "subGroupPolicy": {"subGroupPolicyType": {"LeaderWorker", "LeaderExcluded"}, "subGroupSize": int},
    },
}
# YAML in a comment: a key in small letters. Prose begins with a capital letter.
OPTIONAL = re.compile(r"^( *)# ( *[a-z][\w./-]*:(?: .*)?)$", re.MULTILINE)


class Wrong(Exception):
    pass


def require(holds, text):
    if not holds:
        raise Wrong(text)


def builtin(document):
    """Checks a document of a kind that Kubernetes itself has. Unknown fields are mistakes."""
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as e:
            where = ".".join(str(part) for part in e.path)
            raise Wrong(f"{document['kind']} of Kubernetes {version}: {where}: {e.message}") from None


def published(value, fields, where):
    """Checks a value of a LeaderWorkerSet against the published fields."""
    if fields is TEMPLATE:
        builtin({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": value})
    elif isinstance(fields, dict):
        require(isinstance(value, dict), f"{where} is no object")
        for name, inner in value.items():
            require(name in fields, f"{where} has no field {name}")
            published(inner, fields[name], f"{where}.{name}")
    elif isinstance(fields, set):
        require(value in fields, f"{where}: {value} is none of {', '.join(sorted(fields))}")
    else:
        require(isinstance(value, fields) and not isinstance(value, bool), f"{where}: {value} is of the wrong type")


def pods(spec):
    """Checks what a world needs of its pods. Returns the variables of their container."""
    (container,) = spec["containers"]
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    known = (ROOT / "docs/running.md").read_text()
    for name, value in variables.items():
        require(re.search(rf"`{name}\b", known), f"docs/running.md does not name {name}")
        require(isinstance(value, str), f"{name} is no text: {value}")
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounts = {mount["mountPath"]: volumes.get(mount["name"], {}) for mount in container["volumeMounts"]}
    secret = pathlib.PurePosixPath(variables["WARPBELL_SECRET_FILE"])
    require(str(secret.parent) in mounts, f"nothing is mounted at {secret.parent}")
    volume = mounts[str(secret.parent)].get("secret", {})
    require(volume.get("defaultMode") == 0o400, "the secret's mode is not 0400")
    require(mounts.get("/dev/shm", {}).get("emptyDir", {}).get("medium") == "Memory", "/dev/shm is not in memory")
    require(container["resources"]["limits"].get("nvidia.com/gpu") == 1, "a rank has not one GPU")
    require(spec["enableServiceLinks"] is False, "variables of Services are on")
    return variables, volume


def job(documents):
    (service,) = (d for d in documents if d["kind"] == "Service")
    (work,) = (d for d in documents if d["kind"] == "Job")
    name, spec, pod = work["metadata"]["name"], work["spec"], work["spec"]["template"]["spec"]
    variables, _ = pods(pod)
    require(spec["completionMode"] == "Indexed", "the Job is not indexed")
    ranks = spec["completions"]
    require(spec["parallelism"] == ranks, "not all ranks run at once")
    require(variables["WARPBELL_SIZE"] == str(ranks), f"WARPBELL_SIZE is not the {ranks} of completions")
    require(pod["subdomain"] == service["metadata"]["name"], "the pods are not under the Service")
    require(service["spec"]["clusterIP"] == "None", "the Service is not headless")
    require(service["spec"]["publishNotReadyAddresses"], "rank 0 is not found before it is ready")
    require(service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}, "the Service selects other pods")
    store = f"{name}-0.{pod['subdomain']}:{service['spec']['ports'][0]['port']}"
    require(variables["WARPBELL_STORE"] == store, f"WARPBELL_STORE is not {store}")


def leader_worker_set(documents):
    (document,) = documents
    require(document["apiVersion"] == "leaderworkerset.x-k8s.io/v1", "not version v1")
    published(document["spec"], LWS_SPEC, "spec")
    template = document["spec"]["leaderWorkerTemplate"]
    variables, _ = pods(template["workerTemplate"]["spec"])
    require("leaderTemplate" not in template, "rank 0 has another template")
    require(template["restartPolicy"] == "RecreateGroupOnPodRestart", "a world does not start again as a whole")
    require(document["spec"]["startupPolicy"] == "LeaderCreated", "workers wait for a leader that waits for them")
    require("WARPBELL_STORE" not in variables, "WARPBELL_STORE is set beside LWS_LEADER_ADDRESS")


def check(name, text):
    documents = list(yaml.safe_load_all(text))
    for document in documents:
        if document["kind"] != "LeaderWorkerSet":
            builtin(document)
    {"job.yaml": job, "leaderworkerset.yaml": leader_worker_set}[name](documents)


def with_options(text):
    """Returns a manifest with the YAML in its comments, and how many lines that is."""
    return OPTIONAL.subn(r"\1\2", text)


# Each change, and what the checker says of it.
MISTAKES = [
    ("job.yaml", "completionMode:", "completionMod:", "completionMod"),
    ("job.yaml", "completions: 2", 'completions: "2"', "completions"),
    ("job.yaml", "completions: 2", "completions: 3", "not all ranks"),
    ("job.yaml", 'value: "2"', 'value: "3"', "WARPBELL_SIZE"),
    ("job.yaml", 'value: "2"', "value: 2", "value"),
    ("job.yaml", "subdomain: warpbell", "subdomain: bell", "under the Service"),
    ("job.yaml", "warpbell-0.warpbell:20711", "warpbell-1.warpbell:20711", "WARPBELL_STORE"),
    ("job.yaml", "WARPBELL_TIMEOUT", "WARPBELL_TIME", "docs/running.md"),
    ("job.yaml", "defaultMode: 0400", "defaultMode: 0444", "0400"),
    ("job.yaml", "#     add: [IPC_LOCK]", "#     ad: [IPC_LOCK]", "ad"),
    ("job.yaml", "#   runAsUser: 1000", "#   runAsUser: me", "runAsUser"),
    ("leaderworkerset.yaml", "size: 2", "sizes: 2", "no field sizes"),
    ("leaderworkerset.yaml", "size: 2", 'size: "2"', "wrong type"),
    ("leaderworkerset.yaml", "LeaderCreated", "Created", "none of"),
    ("leaderworkerset.yaml", "defaultMode: 0400", "mode: 0400", "mode"),
    ("leaderworkerset.yaml", "restartPolicy: RecreateGroupOnPodRestart", "restartPolicy: None", "as a whole"),
]


def main():
    manifests = {path.name: path.read_text() for path in sorted(FOLDER.glob("*.yaml"))}
    for name, text in manifests.items():
        more, lines = with_options(text)
        try:
            check(name, text)
            check(name, more)
        except Wrong as e:
            sys.exit(f"deploy/kubernetes/{name}: {e}")
        require(lines >= 8, f"only {lines} optional lines in {name}")
        print(f"{name}: valid for Kubernetes {' and '.join(VERSIONS)}, also with {lines} optional lines")
    for name, old, new, word in MISTAKES:
        text = manifests[name]
        require(old in text, f"{name} has no `{old}`")
        try:
            check(name, with_options(text.replace(old, new))[0])
        except Wrong as e:
            require(word in str(e), f"{name} with `{new}`: {e}")
        else:
            sys.exit(f"{name} with `{new}` is taken for right")
    print(f"kubernetes: {len(MISTAKES)} planted mistakes found")


main()
