"""A writer of minimal Excel workbooks, for tests."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from xml.sax.saxutils import escape

FIRST_DAY = datetime(1899, 12, 30)
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"


def _cell(value: object) -> str:
    if value is None:
        return "<c/>"
    if isinstance(value, datetime):  # the second style is that of dates
        return f'<c s="1"><v>{(value - FIRST_DAY).total_seconds() / 86400}</v></c>'
    if isinstance(value, (int, float)):
        return f"<c><v>{value}</v></c>"
    return f'<c t="inlineStr"><is><t>{escape(str(value))}</t></is></c>'


def workbook(sheets: Mapping[str, Sequence[Sequence[object]]]) -> bytes:
    """Return the bytes of a workbook with rows of cells by the names of its sheets."""
    start = '<?xml version="1.0" encoding="UTF-8"?>'
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as package:
        names = relations = parts = ""
        for n, (name, rows) in enumerate(sheets.items(), start=1):
            lines = "".join(f"<row>{''.join(map(_cell, row))}</row>" for row in rows)
            sheet = f'{start}<worksheet xmlns="{MAIN}"><sheetData>{lines}</sheetData></worksheet>'
            package.writestr(f"xl/worksheets/sheet{n}.xml", sheet)
            names += f'<sheet name="{name}" sheetId="{n}" r:id="rId{n}"/>'
            relations += f'<Relationship Id="rId{n}" Type="{OFFICE}/worksheet" Target="worksheets/sheet{n}.xml"/>'
            parts += f'<Override PartName="/xl/worksheets/sheet{n}.xml" ContentType="application/vnd.openxmlformats-'
            parts += 'officedocument.spreadsheetml.worksheet+xml"/>'
        relations += f'<Relationship Id="rIdS" Type="{OFFICE}/styles" Target="styles.xml"/>'
        formats = '<xf numFmtId="0"/><xf numFmtId="22" applyNumberFormat="1"/>'
        package.writestr(
            "xl/styles.xml", f'{start}<styleSheet xmlns="{MAIN}"><cellXfs count="2">{formats}</cellXfs></styleSheet>'
        )
        package.writestr(
            "xl/workbook.xml", f'{start}<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>{names}</sheets></workbook>'
        )
        package.writestr(
            "xl/_rels/workbook.xml.rels",
            f'{start}<Relationships xmlns="{PACKAGE}/relationships">{relations}</Relationships>',
        )
        package.writestr(
            "_rels/.rels",
            f'{start}<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="rId1" '
            f'Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        )
        package.writestr(
            "[Content_Types].xml",
            f'{start}<Types xmlns="{PACKAGE}/content-types"><Default Extension="xml" ContentType="application/xml"/>'
            f'<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>{parts}'
            "</Types>",
        )
    return content.getvalue()
