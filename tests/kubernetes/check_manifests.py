#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The manifests of cluster/kubernetes: Kubernetes' published schemas accept every field, names lead
somewhere, times fit together, nothing more is allowed than "restricted" allows, and
docs/kubernetes.md explains every field.

    tests/kubernetes/check_manifests.py

The schemas are those of the package kubernetes-validate. A LeaderWorkerSet has none there: its pods
are checked as pods, and its own fields against LEADER_WORKER_SET below, or against its whole
definition, if WIDEEP_LWS_CRD names the file that its release publishes.
"""
import os
import re
import sys

import jsonschema
import kubernetes_validate
import yaml

from manifests import ROOT, documents, options_of, pod_templates, serving_pods

# The oldest whose pods can sleep before they end without another setting, and the newest known.
VERSIONS = ["1.30", "1.34", kubernetes_validate.latest_version()]
# What a server does after its grace: it ends ranks, and writes what it records.
SECONDS_TO_END = 15
NUMBER = {"type": ["integer", "string"]}
# v1 of leaderworkerset.x-k8s.io, for what is used here, but for pods.
LEADER_WORKER_SET = {
    "type": "object", "additionalProperties": False, "required": ["leaderWorkerTemplate"],
    "properties": {
        "replicas": {"type": "integer"},
        "startupPolicy": {"enum": ["LeaderCreated", "LeaderReady"]},
        "rolloutStrategy": {
            "type": "object", "additionalProperties": False, "required": ["type"],
            "properties": {
                "type": {"enum": ["RollingUpdate"]},
                "rollingUpdateConfiguration": {
                    "type": "object", "additionalProperties": False,
                    "properties": {"partition": {"type": "integer"}, "maxUnavailable": NUMBER,
                                   "maxSurge": NUMBER}}}},
        "networkConfig": {"type": "object"},
        "leaderWorkerTemplate": {
            "type": "object", "additionalProperties": False, "required": ["workerTemplate"],
            "properties": {
                "size": {"type": "integer", "minimum": 1},
                "restartPolicy": {"enum": ["RecreateGroupOnPodRestart", "RecreateGroupAfterStart",
                                           "None", "Default"]},
                "leaderTemplate": {"type": "object"}, "workerTemplate": {"type": "object"},
                "subGroupPolicy": {"type": "object"}}}}}
# Labels and fields of pods that controllers set.
SET_BY_CONTROLLERS = re.compile(r"leaderworkerset\.sigs\.k8s\.io/(name|worker-index)$")
FIELDS = re.compile(r"status\.podIP$|metadata\.labels\['apps\.kubernetes\.io/pod-index'\]$")
LWS_VARIABLES = {"LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"}

failures = []


def expect(condition, where, what):
    if not condition:
        failures.append(f"{where}: {what}")


def forbid_unknown(schema):
    """A published definition lets unknown fields pass, which a server then drops without a word."""
    if isinstance(schema, list):
        for each in schema:
            forbid_unknown(each)
    if not isinstance(schema, dict):
        return
    if "properties" in schema and "additionalProperties" not in schema and not schema.get(
            "x-kubernetes-preserve-unknown-fields"):
        schema["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        schema["type"] = ["integer", "string"]
    for each in list(schema.values()):
        forbid_unknown(each)


def check_leader_worker_set(where, document):
    expect(document["apiVersion"] == "leaderworkerset.x-k8s.io/v1", where, "apiVersion")
    schema = {"properties": {"spec": LEADER_WORKER_SET}}
    if "WIDEEP_LWS_CRD" in os.environ:
        with open(os.environ["WIDEEP_LWS_CRD"], encoding="utf-8") as file:
            versions = yaml.safe_load(file)["spec"]["versions"]
        schema = next(each for each in versions if each["name"] == "v1")["schema"]["openAPIV3Schema"]
        forbid_unknown(schema)
        schema["properties"]["metadata"] = {"type": "object"}
    for error in jsonschema.Draft7Validator(schema).iter_errors(document):
        expect(False, where, f"{'.'.join(map(str, error.absolute_path))}: {error.message}")
    for name, template in pod_templates(document):
        check_schema(f"{where} {name}", {"apiVersion": "v1", "kind": "PodTemplate",
                                         "metadata": {"name": "any"}, "template": template})


def check_schema(where, document):
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            expect(False, f"{where} (Kubernetes {version})", f"{error.path}: {error.message}")


def check_names(where, document, all_of_file):
    """What a document names is there: labels, ports, volumes, ConfigMaps, accounts."""
    def named(kind):
        return {each["metadata"]["name"] for each in all_of_file if each["kind"] == kind}
    templates = [template for each in all_of_file for _, template in pod_templates(each)]
    spec = document.get("spec", {})
    if document["kind"] in ("Service", "NetworkPolicy"):
        selector = spec.get("selector") or spec["podSelector"]["matchLabels"]
        known = {key: value for key, value in selector.items() if not SET_BY_CONTROLLERS.match(key)}
        matches = [template for template in templates
                   if known.items() <= template["metadata"]["labels"].items()]
        expect(matches, where, f"no pod has the labels {selector}")
    if document["kind"] == "Service":
        for port in spec["ports"]:
            target = port.get("targetPort", port["port"])
            ports = {each["name"] for template in matches
                     for each in template["spec"]["containers"][0].get("ports", [])}
            expect(isinstance(target, int) or target in ports, where, f"no pod has a port {target}")
    if document["kind"] == "StatefulSet":
        labels = spec["template"]["metadata"]["labels"].items()
        expect(spec["selector"]["matchLabels"].items() <= labels, where, "selector")
        expect(spec["serviceName"] in named("Service"), where, "no such serviceName")
    for name, template in pod_templates(document):
        pod, at = template["spec"], f"{where} {name}"
        volumes = {each["name"]: each for each in pod["volumes"]}
        mounts = {each["name"] for each in pod["containers"][0]["volumeMounts"]}
        expect(set(volumes) == mounts, at, f"volumes {set(volumes)} are mounted as {mounts}")
        account = pod.get("serviceAccountName")
        expect(account is None or account in named("ServiceAccount"), at, "no such account")
        given = {each["name"] for each in pod["containers"][0].get("env", [])}
        for each in pod["containers"][0].get("env", []):
            expect(FIELDS.match(each["valueFrom"]["fieldRef"]["fieldPath"]), at, each["name"])
        used = set(re.findall(r"\$\((\w+)\)", " ".join(pod["containers"][0].get("args", []))))
        if document["kind"] == "LeaderWorkerSet":
            given |= LWS_VARIABLES
        expect(used <= given, at, f"variables that nobody sets: {used - given}")


def check_restricted(where, pod):
    """Kubernetes' pod security standard "restricted", and a root file system that nobody writes."""
    security = pod["securityContext"]
    expect(security["runAsNonRoot"] is True and security["runAsUser"] > 0, where, "runs as root")
    expect(security["seccompProfile"]["type"] == "RuntimeDefault", where, "seccompProfile")
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        expect(key not in pod, where, key)
    for container in pod["containers"]:
        own = container["securityContext"]
        expect(own["allowPrivilegeEscalation"] is False, where, "allowPrivilegeEscalation")
        expect(own["capabilities"] == {"drop": ["ALL"]}, where, "capabilities")
        expect(own["readOnlyRootFilesystem"] is True, where, "readOnlyRootFilesystem")
    # Names of Services would be variables, WIDEEP_PORT among them.
    expect(pod["enableServiceLinks"] is False, where, "enableServiceLinks")


def sleep_of(pod):
    return pod["containers"][0].get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get(
        "seconds", 0)


def check_times():
    sleeps = {}
    for file, document, where, pod in serving_pods():
        at = f"{file} {document['metadata']['name']} {where}"
        options = options_of(file, pod)
        needed = sleep_of(pod) + options["grace-seconds"] + SECONDS_TO_END
        given = pod["terminationGracePeriodSeconds"]
        expect(given >= needed, at, f"terminationGracePeriodSeconds {given}: preStop, grace-seconds "
               f"and the end take up to {needed} s")
        container = pod["containers"][0]
        serves = "ports" in container
        sleeps.setdefault(file, {})[serves] = sleep_of(pod)
        expect(("startupProbe" in container) == serves, at, "probes are for who serves HTTP")
        if not serves:
            continue
        paths = {name: container[name]["httpGet"]["path"]
                 for name in ("startupProbe", "readinessProbe", "livenessProbe")}
        # /health is 503 while it drains, and where a rank hangs, which the service heals itself.
        expect(paths == {"startupProbe": "/health", "readinessProbe": "/health",
                         "livenessProbe": "/version"}, at, f"probes: {paths}")
    for file, each in sleeps.items():
        # Where all pods end, a node's signal must come when node 0 has had its own: else it takes
        # its ranks away from requests that still run.
        expect(len(each) == 1 or each[False] > each[True], file, f"preStop: {each}")


def keys_of(value):
    """All names of fields in a document, but for those of labels and data."""
    if isinstance(value, list):
        return set().union(*map(keys_of, value)) if value else set()
    if not isinstance(value, dict):
        return set()
    keys = set()
    for key, below in value.items():
        keys.add(key)
        is_map = key in ("labels", "matchLabels", "data") or key == "selector" and (
            "matchLabels" not in below)
        if not is_map:
            keys |= keys_of(below)
    return keys


def check_guide(keys):
    with open(os.path.join(ROOT, "docs", "kubernetes.md"), encoding="utf-8") as file:
        rows = [line for line in file if line.startswith("|")]
    explained = set(re.findall(r"[A-Za-z][A-Za-z0-9.-]*", " ".join(
        name for row in rows for name in re.findall(r"`([^`]+)`", row))))
    expect(not keys - explained, "docs/kubernetes.md", f"no row has {sorted(keys - explained)}")


def main():
    files = {}
    for file, document in documents():
        files.setdefault(file, []).append(document)
    expect(len(files) >= 3, "cluster/kubernetes", f"found {sorted(files)}")
    keys = set()
    for file, all_of_file in files.items():
        for document in all_of_file:
            where = f"{file} {document['kind']} {document['metadata']['name']}"
            if document["kind"] == "LeaderWorkerSet":
                check_leader_worker_set(where, document)
            else:
                check_schema(where, document)
            check_names(where, document, all_of_file)
            for _, template in pod_templates(document):
                check_restricted(where, template["spec"])
            keys |= keys_of(document)
    check_times()
    for file, _, _, pod in serving_pods():
        keys |= set(options_of(file, pod))
    check_guide(keys)
    for failure in failures:
        print(failure)
    print(f"{sum(map(len, files.values()))} objects of {len(files)} files, {len(keys)} fields, "
          f"Kubernetes {', '.join(VERSIONS)}: {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
