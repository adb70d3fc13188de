"""The dashboard's colours for the light and dark theme, and the pairs that must have enough contrast."""

from __future__ import annotations

LIGHT = {
    "bg": "#f4f6f8",
    "surface": "#ffffff",
    "sunken": "#edf0f3",
    "line": "#dbe0e6",
    "edge": "#7f8996",
    "text": "#14181e",
    "muted": "#55606d",
    "accent": "#0a6a74",
    "on-accent": "#ffffff",
    "accent-soft": "#e0f0f1",
    "good": "#1b7440",
    "good-soft": "#e5f4ea",
    "warn": "#855000",
    "warn-soft": "#fff2d9",
    "bad": "#b42318",
    "bad-soft": "#fdecea",
    "c1": "#0a6a74",
    "c2": "#b45309",
    "c3": "#6d4ac7",
    "c4": "#b3316b",
    "c5": "#3b7a1e",
    "c6": "#1f5fbf",
    "c7": "#86660a",
    "c8": "#5b6470",
}
DARK = {
    "bg": "#0f1317",
    "surface": "#161b21",
    "sunken": "#0b0e12",
    "line": "#29313a",
    "edge": "#717c8a",
    "text": "#e6eaef",
    "muted": "#9ba6b3",
    "accent": "#52c5ce",
    "on-accent": "#06262a",
    "accent-soft": "#123036",
    "good": "#6ccb93",
    "good-soft": "#13301f",
    "warn": "#f0b458",
    "warn-soft": "#33270f",
    "bad": "#ff8f85",
    "bad-soft": "#3b1b18",
    "c1": "#52c5ce",
    "c2": "#f0a05a",
    "c3": "#b7a2ff",
    "c4": "#ff8fb8",
    "c5": "#8fd46a",
    "c6": "#7fb2ff",
    "c7": "#e0c04a",
    "c8": "#aeb8c4",
}
SERIES = 8  # colours of chart series: c1 to c8

# (foreground, background, minimum contrast by WCAG 2.2 AA)
CONTRAST_PAIRS = (
    *(
        (foreground, background, 4.5)
        for foreground in ("text", "muted", "accent", "good", "warn", "bad")
        for background in ("bg", "surface", "sunken")
    ),
    *((foreground, f"{foreground}-soft", 4.5) for foreground in ("accent", "good", "warn", "bad")),
    ("text", "accent-soft", 4.5),
    ("text", "warn-soft", 4.5),
    ("text", "bad-soft", 4.5),
    ("on-accent", "accent", 4.5),
    ("surface", "bad", 4.5),
    ("edge", "surface", 3.0),
    ("edge", "bg", 3.0),
    *((f"c{n}", "surface", 3.0) for n in range(1, SERIES + 1)),
)


def luminance(colour: str) -> float:
    """The relative luminance of a colour.

    >>> luminance("#ffffff"), luminance("#000000")
    (1.0, 0.0)
    """
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours, from 1 to 21.

    >>> contrast("#000000", "#ffffff")
    21.0
    """
    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def stylesheet() -> str:
    """CSS variables for both themes; the system's theme applies unless the user has selected one."""
    light, dark = (
        "".join(f"--{name}:{colour};" for name, colour in theme.items()) for theme in (LIGHT, DARK)
    )
    return (
        f":root{{color-scheme:light;{light}}}"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}"
    )
