"""How the HTML report looks, by day and by night."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --page: #ffffff; --text: #1c2329; --soft: #56616b; --line: #d4dae0; --panel: #f4f6f8; --link: #0b57a4;
  --exact: #d3f0da; --effective: #d9ecfb; --least: #fdf0c4; --most: #fbe0c8; --bad: #fbd5d3; --off: #eef0f2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12171c; --text: #e4e9ee; --soft: #a0acb7; --line: #37424c; --panel: #1a2128; --link: #8dc2ff;
    --exact: #14432a; --effective: #133c5a; --least: #4d3f0c; --most: #55320f; --bad: #5c1f1f; --off: #232b33;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem; max-width: 90rem; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif;
}
h1 { margin: 0 0 .5rem; font-size: 1.6rem; }
h2 { margin: 2.5rem 0 .5rem; font-size: 1.25rem; }
h3 { margin: 0; font-size: 1.05rem; }
a { color: var(--link); }
a:focus-visible, .wide:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0; }
caption { padding: .25rem 0; text-align: left; color: var(--soft); }
th, td { padding: .4rem .6rem; border: 1px solid var(--line); text-align: left; vertical-align: top; }
thead th { background: var(--panel); }
th { font-weight: 600; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.told { min-width: 16rem; overflow-wrap: anywhere; }
.matrix td { min-width: 9rem; }
.matrix td a { color: inherit; font-weight: 600; }
.small { display: block; font-size: .8rem; color: var(--soft); }
td .small { color: inherit; }
.sign { display: inline-block; min-width: 1.2em; font-weight: 700; }
.exactly-once, .held, .caught { background: var(--exact); }
.effectively-once { background: var(--effective); }
.at-least-once, .twice { background: var(--least); }
.at-most-once { background: var(--most); }
.failed, .broken, .void { background: var(--bad); }
.not-run { background: var(--off); }
.verdict { padding: .6rem .9rem; border: 2px solid var(--line); border-radius: .4rem; font-weight: 600; }
.cell { margin: 1rem 0; padding: .8rem 1rem; border: 1px solid var(--line); border-radius: .4rem; }
.cell:target { border: 3px solid var(--link); }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 1rem 0; }
dl.facts dt { color: var(--soft); }
dl.facts dd { margin: 0; overflow-wrap: anywhere; }
@media print { .wide { overflow: visible; } .cell { break-inside: avoid; } }
"""
