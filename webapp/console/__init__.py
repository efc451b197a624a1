"""The operator's console: pages at `/console`.

- `routes.py`: the path, handler and required role of every page and form
- `pages/`: one module per page; `templates/`: the HTML of each; `strings.toml`: every text
- `static/`: style sheet, script, icon; `tidings/pages`: htmx, security headers, event streams
- `access/`: sessions, forms and the one-time link
- `streams.py`: event streams of pages that update themselves
- `figures/`: what the overview shows; `operations/`: requests to the owners of shards
- `layer.py`: middleware that serves all of it; `console_wiring.py`: its parts
"""
