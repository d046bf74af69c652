"""How schemathesis reads answers that are not one JSON document: an export has several YAML documents, a log one JSON object a line."""

import json

import schemathesis


@schemathesis.deserializer("application/yaml", "application/x-yaml", "application/vnd.yaml", "text/yaml", "text/x-yaml", "text/vnd.yaml")  # all built-in ones
def yaml_text(ctx, response):
    return response.content.decode("utf-8")


@schemathesis.deserializer("application/x-ndjson")
def json_lines(ctx, response):
    return [json.loads(line) for line in response.content.decode("utf-8").splitlines()]
