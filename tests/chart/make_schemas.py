#!/usr/bin/env python3
"""make_schemas.py DIRECTORY SWAGGER CRD...: writes the JSON schemas with which kubeconform checks Kubernetes objects.

SWAGGER is the OpenAPI 2 description in Kubernetes' source, api/openapi-spec/swagger.json; each CRD is a YAML file with
CustomResourceDefinitions. Each kind gets a file KIND-GROUP-VERSION.json, named as kubeconform's template
{{.ResourceKind}}{{.KindSuffix}} does. The schemas are strict: fields that they do not name are errors.
"""

import json
import pathlib
import sys

import yaml

REFERENCE = "#/definitions/"
NUMBER_OR_TEXT = {"type": ["string", "number"]}
# Types whose description says text, while the API server takes numbers too.
LOOSE = {"io.k8s.apimachinery.pkg.util.intstr.IntOrString", "io.k8s.apimachinery.pkg.api.resource.Quantity"}
# Fields that a CRD need not name.
OF_EVERY_OBJECT = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
IGNORED = {"description", "format", "default"}


def strict(schema):
    """The schema as JSON Schema, without fields beyond those named. Parts whose fields are open stay open."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return NUMBER_OR_TEXT
    result = {}
    for name, part in schema.items():
        if name == "properties":
            result[name] = {field: strict(value) for field, value in part.items()}
        elif name not in IGNORED and not name.startswith("x-kubernetes-"):
            result[name] = strict(part)
    if "properties" in result and "additionalProperties" not in result and \
            not schema.get("x-kubernetes-preserve-unknown-fields"):
        result["additionalProperties"] = False
    return result


def references(schema):
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].removeprefix(REFERENCE)
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from references(part)


def with_definitions(name, definitions):
    """The schema of that name, with all definitions that it needs."""
    needed, found = {}, [name]
    while found:
        one = found.pop()
        if one not in needed:
            needed[one] = definitions[one]
            found.extend(references(definitions[one]))
    return {"$ref": REFERENCE + name, "definitions": needed}


def main():
    directory, swagger, *crds = sys.argv[1:]
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)

    def write(group, version, kind, schema):
        parts = [kind, *filter(None, [group.split(".")[0]]), version]
        (directory / ("-".join(parts).lower() + ".json")).write_text(json.dumps(schema))

    described = json.loads(pathlib.Path(swagger).read_text())["definitions"]
    definitions = {name: NUMBER_OR_TEXT if name in LOOSE else strict(schema) for name, schema in described.items()}
    for name, schema in described.items():
        kinds = schema.get("x-kubernetes-group-version-kind", [])
        if len(kinds) == 1:  # DeleteOptions and the like belong to every group
            write(kinds[0]["group"], kinds[0]["version"], kinds[0]["kind"], with_definitions(name, definitions))
    for path in crds:
        for crd in filter(None, yaml.safe_load_all(pathlib.Path(path).read_text())):
            for version in crd["spec"]["versions"]:
                schema = version["schema"]["openAPIV3Schema"]
                schema["properties"] = OF_EVERY_OBJECT | schema["properties"]
                write(crd["spec"]["group"], version["name"], crd["spec"]["names"]["kind"], strict(schema))


if __name__ == "__main__":
    main()
