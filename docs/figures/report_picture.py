"""Draws docs/figures/report.png, the picture of the README: the top of a report, and its map of the items.

contradpp data convert grocer orders.csv
contradpp fit orders.csv -o shop.safetensors --report shop.html
python docs/figures/report_picture.py shop.html docs/figures/report.png
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

WIDTH = 1180
CHOSEN = "spaghetti"
ONLY_THE_TOP_AND_THE_MAP = """() => {
    for (const part of document.querySelectorAll('main > *')) {
        const title = part.querySelector('h2');
        const kept = title ? /map of the items/.test(title.textContent) : part.matches('header, .tiles');
        if (!kept) part.remove();
    }
    document.querySelector('.theme').remove();
}"""


def draw(report: Path, picture: Path) -> None:
    """A screenshot of the report without its other sections, in few colors so that the file stays small."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": 1200}, device_scale_factor=1.3)
        page.goto(report.absolute().as_uri())
        page.evaluate(ONLY_THE_TOP_AND_THE_MAP)
        dot = page.locator("circle.item", has_text=re.compile(f"^{re.escape(CHOSEN)}: in"))
        dot.dispatch_event("mouseenter")
        dot.dispatch_event("mouseleave")
        end = page.evaluate(
            "document.querySelector('main').lastElementChild.getBoundingClientRect().bottom"
        )
        page.set_viewport_size({"width": WIDTH, "height": round(end) + 24})
        page.screenshot(path=picture)
        browser.close()
    colors = (
        Image.open(picture)
        .convert("RGB")
        .quantize(96, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    )
    colors.save(picture, optimize=True)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
