"""The style of the HTML report, and its one script: light and dark, screen and paper, nothing from elsewhere."""

_BARS = "".join(f".long-{percent}{{width:{percent}%}}" for percent in range(101))
"""Lengths of bars as classes: a page whose policy forbids styles in its elements can have them too."""

STYLE = (
    """
:root {
  color-scheme: light dark;
  --paper: #fbfaf7; --card: #ffffff; --ink: #1d2730; --soft: #5d6873; --faint: #666f78; --rule: #e5e2da;
  --accent: #0f766e; --accent-soft: #cfe7e3; --good: #17704a; --useful: #17704a; --bad: #b4412c; --warn: #8a5a00;
  --before: #9aa3ab; --whisker: #0b3f3a;
  --w0: #b4412c; --w1: #c4593f; --w2: #d07355; --w3: #da8d6f; --w4: #e3a78b; --w5: #ebbfa8; --w6: #f1d3c3; --w7: #f5e2d7;
  --heat: #0f766e; --cell: #efece5;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #12161a; --card: #191f25; --ink: #e4e7e9; --soft: #a3adb6; --faint: #8a95a0; --rule: #2b333b;
    --accent: #4fc3b5; --accent-soft: #1d4843; --good: #6fcf9f; --useful: #2a7d5d; --bad: #f08a72; --warn: #e5b45c;
    --before: #74808a; --whisker: #d6f3ee;
    --w0: #e06b52; --w1: #cc5f49; --w2: #b85541; --w3: #a24c3b; --w4: #8c4335; --w5: #763b30; --w6: #61332b; --w7: #4f2d27;
    --heat: #4fc3b5; --cell: #232a31;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums;
}
main, header, footer { max-width: 1040px; margin: 0 auto; padding: 0 40px; }
header { padding-top: 44px; }
.brand { color: var(--accent); font-weight: 650; letter-spacing: .02em; }
h1 { font-size: 30px; line-height: 1.2; margin: 4px 0 6px; font-weight: 640; letter-spacing: -.01em; text-wrap: balance; }
h2 { font-size: 20px; margin: 0 0 4px; font-weight: 620; letter-spacing: -.005em; }
h3 { font-size: 15px; margin: 26px 0 6px; font-weight: 620; }
p { margin: 6px 0; max-width: 72ch; }
.soft, .lead { color: var(--soft); }
.lead { margin-bottom: 18px; }
section {
  background: var(--card); border: 1px solid var(--rule); border-radius: 12px; padding: 26px 30px 28px;
  margin: 22px 0;
}
.notice { border-left: 3px solid var(--warn); padding: 2px 0 2px 12px; margin: 10px 0; color: var(--warn); }
.notice p { margin: 2px 0; }

.figures { display: grid; grid-template-columns: repeat(4, 1fr); gap: 18px; margin: 22px 0 4px; }
.figure { background: var(--card); border: 1px solid var(--rule); border-radius: 12px; padding: 16px 20px 15px; }
.figure .name { color: var(--soft); font-size: 13px; }
.figure .value { font-size: 27px; line-height: 1.25; font-weight: 640; letter-spacing: -.015em; white-space: nowrap; }
.figure .note { color: var(--soft); font-size: 13px; }
.figure.good .value { color: var(--good); }
.figure.bad .note { color: var(--bad); font-weight: 600; }

.contents ul { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 18px 0 0; padding: 0; list-style: none; }
.contents a { color: var(--accent); text-decoration: none; font-size: 14px; }
.contents a:hover, .contents a:focus-visible { text-decoration: underline; }
.scroll { overflow-x: auto; }
.chart { display: block; width: 100%; height: auto; font-size: 12.5px; fill: var(--ink); }
.chart + .chart { margin-top: 8px; }
.chart .tick { fill: var(--faint); font-size: 11.5px; }
.chart .label { fill: var(--ink); }
.chart .strong { font-weight: 640; }
.chart .grid { stroke: var(--rule); stroke-width: 1; }
.chart .link { stroke: var(--faint); stroke-width: 1; stroke-dasharray: 2 2; }
.chart .whisker { stroke: var(--whisker); stroke-width: 1.5; opacity: .75; }
.chart .bar-before { fill: var(--before); }
.chart .bar-saving { fill: var(--accent); opacity: .62; }
.chart .bar-after { fill: var(--accent); }
.chart .line-before { stroke: var(--before); stroke-width: 1.6; }
.chart .line-after { stroke: var(--accent); stroke-width: 1.6; }
.chart .run-0 { stroke: var(--before); stroke-width: 1.6; } .chart .run-1 { stroke: var(--accent); stroke-width: 1.6; }
.chart .run-2 { stroke: #c98a1b; stroke-width: 1.6; } .chart .run-3 { stroke: #8a63c9; stroke-width: 1.6; }
.chart .area-after { fill: var(--accent); opacity: .16; }
.chart .area-demand { fill: var(--before); opacity: .38; }
.load-held { fill: var(--ink); background: var(--ink); } .load-first { fill: var(--accent); background: var(--accent); }
.load-later { fill: color-mix(in srgb, var(--accent) 55%, var(--card)); }
.key.load-later { background: color-mix(in srgb, var(--accent) 55%, var(--card)); }
.load-demand { fill: var(--before); background: var(--before); } .load-unused { fill: var(--w6); background: var(--w6); }
.chart .hover { fill: var(--ink); opacity: 0; }
.chart .hover:hover { opacity: .05; }
.chart .day-edge { stroke: var(--card); stroke-width: 2; }
.chart .on-bar { fill: #fff; font-size: 12px; font-weight: 600; }
.heat-key { width: 480px; max-width: 100%; margin-top: 10px; }
.waste-bar { border-radius: 4px; }
.w-useful { fill: var(--useful); background: var(--useful); }
.w-0 { fill: var(--w0); background: var(--w0); } .w-1 { fill: var(--w1); background: var(--w1); }
.w-2 { fill: var(--w2); background: var(--w2); } .w-3 { fill: var(--w3); background: var(--w3); }
.w-4 { fill: var(--w4); background: var(--w4); } .w-5 { fill: var(--w5); background: var(--w5); }
.w-6 { fill: var(--w6); background: var(--w6); } .w-7 { fill: var(--w7); background: var(--w7); }
.h-none { fill: var(--cell); opacity: .35; } .h-0 { fill: var(--cell); }
.h-1 { fill: color-mix(in srgb, var(--heat) 14%, var(--cell)); }
.h-2 { fill: color-mix(in srgb, var(--heat) 23%, var(--cell)); }
.h-3 { fill: color-mix(in srgb, var(--heat) 32%, var(--cell)); }
.h-4 { fill: color-mix(in srgb, var(--heat) 42%, var(--cell)); }
.h-5 { fill: color-mix(in srgb, var(--heat) 52%, var(--cell)); }
.h-6 { fill: color-mix(in srgb, var(--heat) 62%, var(--cell)); }
.h-7 { fill: color-mix(in srgb, var(--heat) 72%, var(--cell)); }
.h-8 { fill: color-mix(in srgb, var(--heat) 82%, var(--cell)); }
.h-9 { fill: color-mix(in srgb, var(--heat) 91%, var(--cell)); }
.h-10 { fill: var(--heat); }
.heat-map rect { shape-rendering: crispEdges; }

.keys {
  display: flex; flex-wrap: wrap; gap: 4px 22px; margin: 2px 0 10px; padding: 0; list-style: none; color: var(--soft);
  font-size: 13px;
}
.key { display: inline-block; width: 14px; height: 10px; border-radius: 2px; margin-right: 7px; }
.key-before { background: var(--before); height: 3px; vertical-align: 3px; }
.key-after { background: var(--accent); height: 3px; vertical-align: 3px; }
.key-run-0, .key-run-1, .key-run-2, .key-run-3 { height: 3px; vertical-align: 3px; background: var(--before); }
.key-run-1 { background: var(--accent); } .key-run-2 { background: #c98a1b; } .key-run-3 { background: #8a63c9; }
.key-demand { background: var(--before); opacity: .38; }

table { border-collapse: collapse; width: 100%; margin: 8px 0; }
caption { text-align: left; font-weight: 620; padding: 10px 0 4px; }
th {
  text-align: left; font-weight: 560; color: var(--soft); font-size: 13px; padding: 6px 10px;
  border-bottom: 1px solid var(--rule); vertical-align: bottom;
}
td { padding: 7px 10px; border-bottom: 1px solid var(--rule); vertical-align: top; }
th:first-child, td:first-child { padding-left: 0; }
th:last-child, td:last-child { padding-right: 0; }
tbody tr:last-child td { border-bottom: 0; }
.num { text-align: right; white-space: nowrap; }
.nowrap { white-space: nowrap; }
.total td { font-weight: 640; border-top: 1px solid var(--soft); }
.bar {
  display: block; height: 4px; margin-top: 3px; border-radius: 2px; background: var(--accent); opacity: .65;
  min-width: 2px;
}
.tone-soft { color: var(--soft); } .tone-accent { color: var(--accent); } .tone-good { color: var(--good); }
.tone-warn { color: var(--warn); } .tone-bad { color: var(--bad); }

.plan tbody + tbody { border-top: 1px solid var(--rule); }
.plan td { border: 0; }
.plan strong { font-weight: 620; }
.plan .more td { padding-top: 0; padding-bottom: 10px; }
details > summary { cursor: pointer; color: var(--accent); font-size: 13px; width: fit-content; }
details > summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 3px; border-radius: 2px; }
.inside { display: grid; grid-template-columns: 1fr 1fr; gap: 4px 36px; padding: 4px 0 6px; font-size: 14px; }
.inside h3 { margin: 12px 0 2px; font-size: 13px; font-weight: 620; color: var(--soft); }
.inside ul, .inside ol { margin: 2px 0; padding-left: 18px; }
.inside li { margin: 2px 0; overflow-wrap: anywhere; }
.plan .inside td { padding: 1px 0; }
.inside p { margin: 2px 0; }
.inside caption { font-size: 13px; color: var(--soft); padding: 12px 0 2px; }
.query { color: var(--faint); font-size: 12.5px; }
ul.plain { padding-left: 18px; margin: 6px 0; }
ul.plain li { margin: 4px 0; max-width: 80ch; }
footer { color: var(--faint); font-size: 13px; padding-bottom: 48px; }
pre {
  background: var(--cell); border-radius: 8px; padding: 10px 14px; overflow-x: auto;
  font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
}
li pre { margin: 4px 0; font: 12.5px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
code { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }

th button { all: unset; cursor: pointer; }
th button:focus-visible { outline: 2px solid currentColor; outline-offset: 2px; }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
input[type=search] { font: inherit; padding: 4px 8px; margin: 10px 0 8px; max-width: 100%; border: 1px solid var(--rule);
  border-radius: 6px; background: var(--card); color: inherit; }
tr[hidden], tbody[hidden] { display: none; }

.narrow { display: none; }
@media screen and (max-width: 760px) {
  pre { white-space: pre-wrap; overflow-wrap: anywhere; } pre.drawing { white-space: pre; font-size: 10px; }
  .wide { display: none; } .narrow { display: block; }
  main, header, footer { padding-left: 16px; padding-right: 16px; }
  section { padding: 18px 16px 20px; }
  .figures { grid-template-columns: 1fr 1fr; gap: 10px; }
  .inside { grid-template-columns: minmax(0, 1fr); }
  .scroll > .chart { min-width: 720px; } .scroll > .heat-key { min-width: 0; }
  .scroll > table { min-width: 560px; } .scroll > table.few { min-width: 0; }
  .less { display: none; }
  table.few th { font-size: 12px; } table.few th.num { white-space: normal; }
  table.few td { font-size: 14px; }
  table.few td, table.few th { padding-left: 4px; padding-right: 4px; }
  table.few td:first-child, table.few th:first-child { padding-left: 0; }
  table.few td:last-child, table.few th:last-child { padding-right: 0; }
  table.stacked tr { display: flex; flex-wrap: wrap; border-bottom: 1px solid var(--rule); }
  table.stacked td, table.stacked th { border: 0; }
  table.stacked td:first-child, table.stacked th:first-child { flex: 1; }
  table.stacked td.long:not(:first-child) { flex-basis: 100%; padding-left: 0; padding-top: 0; color: var(--soft); }
  table.stacked th.long:not(:first-child) { display: none; }
  .scroll > table.plan { min-width: 0; }
  .plan th, .plan td { padding-left: 4px; padding-right: 4px; font-size: 14px; }
  .plan td { overflow-wrap: anywhere; } .plan th.num { white-space: normal; }
  .plan .inside .scroll > table { min-width: 0; }
}
@media print {
  input[type=search], .contents { display: none; }
  :root { --paper: #fff; --card: #fff; }
  body, .inside, .inside h3, .inside caption, th, .query, code, details > summary { font-size: 11px; }
  .inside { display: block; columns: 2; column-gap: 24px; } .inside > * { break-inside: avoid; }
  h1 { font-size: 24px; } h2 { font-size: 17px; }
  h3, caption { font-size: 12px; } h3 { margin-top: 14px; }
  .scroll { overflow: visible; }
  td, th { padding: 4px 6px; }
  p, ul.plain li { max-width: none; }
  main, header, footer { max-width: none; padding: 0; }
  section { border: 0; border-top: 1px solid var(--rule); border-radius: 0; padding: 14px 0; margin: 0; }
  .figure { padding: 8px 12px; }
  .figure .value { font-size: 20px; }
  svg, tr, .figure { break-inside: avoid; } tr.more { break-inside: auto; }
  h2, h3, caption { break-after: avoid; }
  details::details-content { content-visibility: visible; height: auto; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
"""
    + _BARS
)

SCRIPT = """
"use strict";
// Tables are sorted by a click on a column's name, and filtered where they are long. Without a script they read as they are.
for (const table of document.querySelectorAll("main table")) {
  const head = table.tHead && table.tHead.rows[0];
  const bodies = [...table.tBodies].filter((body) => !body.querySelector(".total"));
  // a row with something folded beneath is a body of its own
  const lines = bodies.length > 1 ? bodies : [...(bodies[0] || table).rows];
  if (!head || lines.length < 3) continue;
  const cellOf = (line, column) => (line.rows ? line.rows[0] : line).cells[column];
  const textOf = (line, column) => (cellOf(line, column) || { textContent: "" }).textContent.trim();
  const numberOf = (text) => {
    const plain = text.replace(/[$,%]/g, "").replace(/^[-\\u2212]/, "-");
    return /^-?\\d/.test(plain) ? parseFloat(plain) : NaN;
  };
  const byText = new Intl.Collator(undefined, { numeric: true });
  [...head.cells].forEach((cell, column) => {
    if (cell.tagName !== "TH") return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => {
      const down = cell.getAttribute("aria-sort") === "ascending";
      for (const other of head.cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      const isNumber = cell.classList.contains("num");
      const parent = lines[0].parentNode;
      lines.sort((a, b) => {
        const [left, right] = [textOf(a, column), textOf(b, column)];
        const [first, second] = isNumber ? [numberOf(left), numberOf(right)] : [NaN, NaN];
        // what was not measured stands last either way
        if (isNumber && isNaN(first) !== isNaN(second)) return isNaN(first) ? 1 : -1;
        const order = isNumber && !isNaN(first) ? first - second : byText.compare(left, right);
        return down ? -order : order;
      });
      const total = [...table.tBodies].find((body) => body.querySelector(".total"));
      for (const line of lines) parent.insertBefore(line, parent === table ? total || null : null);
    });
  });
  if (lines.length < 8) continue;
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "Filter";
  field.setAttribute("aria-label", "Filter the rows of this table");
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase();
    for (const line of lines) line.hidden = !line.textContent.toLowerCase().includes(wanted);
  });
  (table.closest(".scroll") || table).before(field);
}
"""
"""What makes the tables of a page that is one file quicker to read; the page's policy names its hash, and runs nothing else."""
