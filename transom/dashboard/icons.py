"""Icons as inline SVG, so that the dashboard loads no icon font."""

from __future__ import annotations

_PATHS = {
    "overview": '<rect x="2.5" y="2.5" width="4.5" height="6"/><rect x="9" y="2.5" width="4.5" height="3"/>'
    '<rect x="2.5" y="11" width="4.5" height="2.5"/><rect x="9" y="8" width="4.5" height="5.5"/>',
    "queries": '<path d="M2.5 4h11M2.5 8h11M2.5 12h7"/>',
    "sharing": '<circle cx="3.5" cy="8" r="1.5"/><circle cx="12.5" cy="3.5" r="1.5"/>'
    '<circle cx="12.5" cy="12.5" r="1.5"/><path d="M5 7.5 11 4M5 8.5l6 3.5"/>',
    "compare": '<path d="M2.5 13.5h11M3 10.5l3-4 3 2.5 4-6"/><path d="M3 6.5l3 1 3-4 4 3.5" opacity=".55"/>',
    "new": '<path d="M8 3v10M3 8h10"/>',
    "alerts": '<path d="M3.5 11.5h9l-1.2-2V7a3.3 3.3 0 0 0-6.6 0v2.5zM6.7 13.5h2.6"/>',
    "streams": '<path d="M2 5c2-2 4 2 6 0s4 2 6 0M2 9c2-2 4 2 6 0s4 2 6 0M2 13c2-2 4 2 6 0s4 2 6 0"/>',
    "batches": '<path d="M3 13.5V9M6.3 13.5v-8M9.7 13.5V7M13 13.5v-11"/>',
    "help": '<circle cx="8" cy="8" r="5.5"/><path d="M6.4 6.4a1.7 1.7 0 1 1 2.5 1.5c-.6.3-.9.7-.9 1.3M8 11.2v.01"/>',
    "format": '<path d="M2.5 4h11M5 7.5h8.5M5 11h6M2.5 7.5h.01M2.5 11h.01"/>',
    "late": '<circle cx="8" cy="8" r="5.5"/><path d="M8 4.8V8l2.2 1.6"/>',
    "refresh": '<path d="M13 8a5 5 0 1 1-1.5-3.6M13 2.5v2.6h-2.6"/>',
    "theme": '<circle cx="8" cy="8" r="5.5"/><path d="M8 2.5v11a5.5 5.5 0 0 0 0-11z" fill="currentColor"/>',
    "keys": '<rect x="1.5" y="4" width="13" height="8.5" rx="1.5"/><path d="M4 6.7h.01M6.7 6.7h.01'
    'M9.3 6.7h.01M12 6.7h.01M4.5 10h7"/>',
    "copy": '<rect x="5.5" y="5.5" width="8" height="8" rx="1"/><path d="M10.5 5.5v-3h-8v8h3"/>',
    "warn": '<path d="M8 2.5 14 13H2z"/><path d="M8 6.5v3M8 11.3v.01"/>',
    "good": '<circle cx="8" cy="8" r="5.5"/><path d="m5.6 8.2 1.7 1.7 3.2-3.6"/>',
    "bad": '<circle cx="8" cy="8" r="5.5"/><path d="M8 5v3.4M8 10.9v.01"/>',
    "drop": '<path d="M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5l.6 9h5.8l.6-9"/>',
    "play": '<path d="M5 3.5v9l7-4.5z"/>',
    "out": '<path d="M9.5 2.5h-6v11h6M6.5 8h7M11 5.2 13.8 8 11 10.8"/>',
    "down": '<path d="M8 2.5v8M4.8 7.5 8 10.7l3.2-3.2M3 13.5h10"/>',
    "none": '<path d="M2 12.5h12M3 10l3-3 3 2 4-5"/>',
    "lost": '<circle cx="7" cy="7" r="4.5"/><path d="m10.4 10.4 3.4 3.4M5.5 7h3"/>',
}
BRAND = (
    '<svg viewBox="0 0 20 20" fill="none" stroke="currentColor" stroke-width="1.8" aria-hidden="true">'
    '<rect x="2.5" y="2.5" width="15" height="15" rx="2"/><path d="M2.5 8h15M8 8v9.5"/></svg>'
)
FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 20 20" fill="none" stroke="#148993" '
    'stroke-width="2">'
    '<rect x="2.5" y="2.5" width="15" height="15" rx="2"/><path d="M2.5 8h15M8 8v9.5"/></svg>'
)


def icon(name: str) -> str:
    """An icon as SVG, hidden from screen readers: the element that contains it has a name."""
    return f'<svg class="icon" viewBox="0 0 16 16" aria-hidden="true">{_PATHS[name]}</svg>'
