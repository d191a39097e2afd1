"""How every page is made from its template: text is escaped, and a name that a template does not get is an error."""

from __future__ import annotations

from pathlib import Path

import jinja2

from analysis import wording

TEMPLATES = Path(__file__).parent / "templates"


def template(name: str) -> jinja2.Template:
    """The template of that file name in `templates/`, with the filter `number`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = wording.number
    return environment.get_template(name)
