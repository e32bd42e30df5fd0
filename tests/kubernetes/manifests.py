# SPDX-License-Identifier: Apache-2.0
"""Reads cluster/kubernetes/*.yaml as Kubernetes would: variables of arguments, options files of
ConfigMaps, numbers of probes. Shared by check_manifests.py and run_manifests.py."""
import glob
import os
import re

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(ROOT, "cluster", "kubernetes")


def documents():
    """(file name, document) of all."""
    for path in sorted(glob.glob(os.path.join(FOLDER, "*.yaml"))):
        with open(path, encoding="utf-8") as file:
            for document in yaml.safe_load_all(file):
                yield os.path.basename(path), document


def pod_templates(document):
    """(where, template) of those that a document has."""
    spec = document.get("spec", {})
    if document["kind"] == "LeaderWorkerSet":
        for name in ("leaderTemplate", "workerTemplate"):
            if name in spec["leaderWorkerTemplate"]:
                yield name, spec["leaderWorkerTemplate"][name]
    elif "template" in spec:
        yield "template", spec["template"]


def serving_pods(file=None):
    """(file, document, where, pod's spec) of the pods that run wideep."""
    for name, document in documents():
        if file is not None and name != file:
            continue
        for where, template in pod_templates(document):
            if "wideep" in template["spec"]["containers"][0]["image"]:
                yield name, document, where, template["spec"]


def expand(text, variables):
    """$(NAME) of an argument; Kubernetes leaves those that it does not know, which is an error."""
    def value(match):
        if match[1] not in variables:
            raise SystemExit(f"{text}: expected one of {sorted(variables)}")
        return variables[match[1]]
    return re.sub(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)", value, text)


def options_of(file, pod):
    """The options file that a pod mounts, as YAML."""
    names = [each["configMap"]["name"] for each in pod["volumes"] if "configMap" in each]
    for name, document in documents():
        if name == file and document["kind"] == "ConfigMap" and document["metadata"]["name"] in names:
            return yaml.safe_load(document["data"]["options.yaml"])
    raise SystemExit(f"{file}: expected a ConfigMap of {names}")
