"""What the pages share: head, colours of light and dark mode, names of languages."""

from __future__ import annotations

from html import escape

LANGUAGE_NAMES = {
    "ar": "Arabic",
    "de": "German",
    "es": "Spanish",
    "fr": "French",
    "hi": "Hindi",
    "ja": "Japanese",
    "ko": "Korean",
    "ru": "Russian",
    "sw": "Swahili",
    "tr": "Turkish",
    "vi": "Vietnamese",
    "zh": "Chinese",
}

_CSS = """
:root {
  color-scheme: light dark;
  --ink: #1c1917; --faint: #78716c; --page: #fafaf9; --surface: #fff; --line: #e7e5e4;
  --accent: #c2560c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #f5f5f4; --faint: #a8a29e; --page: #0f0d0c; --surface: #1c1917; --line: #44403c;
    --accent: #ffaa69;
  }
}
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, "Noto Sans", sans-serif;
}
main { margin: 0 auto; padding: 3rem 1.25rem; }
h1 { font-size: 1.7rem; line-height: 1.35; }
h2 { font-weight: 600; }
p { margin: .5rem 0; }
.note, footer, dt, summary { color: var(--faint); font-size: .875rem; }
.card { border: 1px solid var(--line); border-radius: 8px; background: var(--surface);
  overflow-x: auto; }
"""


def html_page(title: str, css: str, body: str) -> str:
    """Return a page that needs nothing from outside.

    Parameters
    ----------
    title : str
        As plain text.
    css : str
        What this page has beyond the styles of all pages.
    body : str
        HTML of its ``main``.

    Returns
    -------
    str
        The page, to be written as UTF-8.
    """
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_CSS}{css}</style>
</head>
<body>
<main>
{body}</main>
</body>
</html>
"""
