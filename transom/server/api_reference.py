"""The API's reference as HTML from the OpenAPI description, without scripts or external resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

JsonObject = Mapping[str, Any]

HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.55 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1.5rem;
  background: light-dark(#fff, #14171c); color: light-dark(#1b2230, #e7eaf0); }}
h2 {{ margin-top: 2.5rem; text-transform: capitalize; }}
h3 {{ font: 600 15px/1.4 ui-monospace, monospace; margin: 1.75rem 0 .25rem; }}
table {{ border-collapse: collapse; width: 100%; margin: .5rem 0; }}
td, th {{ text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0;
  border-bottom: 1px solid light-dark(#dde1e8, #333a46); }}
code, pre {{ font-family: ui-monospace, monospace; font-size: 13px; }}
a {{ color: light-dark(#1f5fbf, #8ab4ff); }}
</style>
</head>
<body><main>
<h1>{title}</h1>
<p>{description}</p>
<p>For programs: <a href="/openapi.json">/openapi.json</a>.</p>
{body}
</main></body>
</html>
"""


def api_reference(description: JsonObject) -> str:
    """The reference of an OpenAPI description, as HTML."""
    info = description["info"]
    body = "\n".join(_routes(description)) + "\n<h2>Schemas</h2>\n" + "\n".join(_schemas(description))
    return HTML.format(
        title=escape(info["title"]), description=escape(info.get("description", "")), body=body
    )


def _routes(description: JsonObject) -> Iterator[str]:
    by_tag: dict[str, list[str]] = {}
    for path, methods in description["paths"].items():
        for method, route in methods.items():
            text = "\n".join(_route(method, path, route))
            by_tag.setdefault((route.get("tags") or ["service"])[0], []).append(text)
    for tag, routes in by_tag.items():
        yield f"<h2>{escape(tag)}</h2>"
        yield from routes


def _route(method: str, path: str, route: JsonObject) -> Iterator[str]:
    yield f"<h3>{method.upper()} {escape(path)}</h3>"
    yield f"<p>{escape(route.get('description', ''))}</p>"
    roles = [role for scheme in route.get("security", ()) for role in scheme]
    yield f"<p>Needs the role {escape(roles[0])}.</p>" if roles else "<p>Needs no token.</p>"
    if route.get("parameters"):
        rows = (
            (each["name"], each["in"], _type_text(each["schema"]), each.get("description", ""))
            for each in route["parameters"]
        )
        yield _table(("parameter", "in", "type", "meaning"), rows)
    body = route.get("requestBody")
    if body is not None:
        yield f"<p>Body: {_type_text(body['content']['application/json']['schema'])}</p>"
    responses = (
        (status, ", ".join(_responses(each))) for status, each in route["responses"].items() if status < "4"
    )
    yield _table(("status", "answer"), responses)


def _responses(response: JsonObject) -> Iterator[str]:
    for media_type, content in response.get("content", {}).items():
        yield f"{escape(media_type)} {_type_text(content.get('schema', {}))}".strip()


def _schemas(description: JsonObject) -> Iterator[str]:
    for name, schema in description["components"]["schemas"].items():
        yield f'<h3 id="{escape(name)}">{escape(name)}</h3>'
        yield f"<p>{escape(schema.get('description', ''))}</p>"
        required = schema.get("required", ())
        rows = (
            (field, _type_text(each), "" if field in required else "optional", each.get("description", ""))
            for field, each in schema.get("properties", {}).items()
        )
        yield _table(("field", "type", "", "meaning"), rows)


def _table(headings: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """A table; cells after the first may hold links, which are escaped already."""
    lines = ["".join(f"<th>{each}</th>" for each in headings)]
    for first, *rest in rows:
        cells = "".join(f"<td>{each if '<a ' in each else escape(each)}</td>" for each in rest)
        lines.append(f"<td><code>{escape(first)}</code></td>{cells}")
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _type_text(schema: JsonObject) -> str:
    """The type of a schema; a named schema becomes a link."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema:
            return " or ".join(dict.fromkeys(_type_text(each) for each in schema[keyword]))
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_type_text(schema.get('items', {}))}"
    return str(schema.get("type", "anything"))
