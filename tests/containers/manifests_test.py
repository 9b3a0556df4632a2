#!/usr/bin/python3 -B
# SPDX-License-Identifier: BSD-2-Clause
"""containers/kubernetes against the schema of Kubernetes: the models of its Python client (Debian's python3-kubernetes), which are
generated from the API's OpenAPI document. Every key has to be one that the model has, of the model's type, and required ones
have to be there.

Usage: manifests_test.py SOURCE_DIRECTORY
"""
import re
import sys
import unittest
from pathlib import Path

SKIPPED = 77
try:
    import yaml
    from kubernetes import client
except ImportError as error:
    print(f"{error}: install python3-kubernetes, or run tools/deps")
    sys.exit(SKIPPED)

SIMPLE = {"str": str, "int": int, "bool": bool, "float": (int, float)}


def faults(value, kind, where):
    """What is wrong with a value that is to be of this type of the client's models."""
    if kind in SIMPLE:
        right = isinstance(value, SIMPLE[kind]) and not (kind == "int" and isinstance(value, bool))
        return [] if right else [f"{where}: {value!r} is no {kind}"]
    if kind == "object":  # quantities and ports by name or number
        return [] if isinstance(value, (str, int)) else [f"{where}: {value!r}"]
    inner = re.fullmatch(r"list\[(.*)\]", kind)
    if inner:
        if not isinstance(value, list):
            return [f"{where}: no list"]
        return [fault for number, one in enumerate(value) for fault in faults(one, inner[1], f"{where}[{number}]")]
    inner = re.fullmatch(r"dict\(str, (.*)\)", kind)
    if inner:
        if not isinstance(value, dict):
            return [f"{where}: no mapping"]
        return [fault for key, one in value.items() for fault in faults(one, inner[1], f"{where}.{key}")]
    model = getattr(client, kind)
    if not isinstance(value, dict):
        return [f"{where}: no mapping"]
    attributes = {json: name for name, json in model.attribute_map.items()}
    found = [f"{where}.{key}: {kind} has no such key" for key in value if key not in attributes]
    known = {attributes[key]: one for key, one in value.items() if key in attributes}
    for name, one in known.items():
        found += faults(one, model.openapi_types[name], f"{where}.{model.attribute_map[name]}")
    try:
        model(**known)  # says which keys have to be there
    except ValueError as error:
        found.append(f"{where}: {error}")
    return found


def documents(source):
    for file in sorted((source / "containers/kubernetes").glob("*.yaml")):
        yield from ((file.name, document) for document in yaml.safe_load_all(file.read_text()))


class Manifests(unittest.TestCase):
    def test_schema(self):
        kinds = []
        for name, document in documents(source):
            self.assertEqual(document["apiVersion"], {"DaemonSet": "apps/v1", "Pod": "v1"}[document["kind"]])
            self.assertEqual(faults(document, f"V1{document['kind']}", name), [])
            kinds.append(document["kind"])
        self.assertEqual(sorted(kinds), ["DaemonSet", "Pod", "Pod"])

    def test_finds_what_is_wrong(self):
        _, pod = next(pair for pair in documents(source) if pair[1]["kind"] == "Pod")
        container = pod["spec"]["containers"][0]
        for spoil, expected in (
            (lambda: container.update(securityContext={"capabilites": {}}), "V1SecurityContext has no such key"),
            (lambda: container.update(securityContext={"runAsUser": "nobody"}), "'nobody' is no int"),
            (lambda: container.pop("name"), "`name`, must not be `None`"),
        ):
            spoil()
            self.assertIn(expected, "\n".join(faults(pod, "V1Pod", "pod")))

    def test_volumes_are_there(self):
        """Which no schema says: what is mounted is a volume of the pod, and every volume is mounted."""
        for name, document in documents(source):
            spec = document["spec"]["template"]["spec"] if document["kind"] == "DaemonSet" else document["spec"]
            containers = spec["containers"] + spec.get("initContainers", [])
            mounted = {mount["name"] for container in containers for mount in container.get("volumeMounts", [])}
            self.assertEqual(mounted, {volume["name"] for volume in spec.get("volumes", [])}, name)

    def test_pods_write_nothing_of_the_nodes(self):
        """A pod that could would put a socket in the place of the broker's, or a library in that of the node's, for all pods."""
        for name, document in documents(source):
            if document["kind"] != "Pod":
                continue
            of_the_node = {volume["name"] for volume in document["spec"].get("volumes", []) if "hostPath" in volume}
            for container in document["spec"]["containers"]:
                for mount in container.get("volumeMounts", []):
                    self.assertTrue(mount["name"] not in of_the_node or mount.get("readOnly"), f"{name}: {mount}")


if __name__ == "__main__":
    source = Path(sys.argv[1])
    unittest.main(verbosity=0, argv=[sys.argv[0], *sys.argv[2:]])
