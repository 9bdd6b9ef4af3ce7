// What stands between the charts: the numbers of now, the slowest epochs, inputs, stages and their join trees, and the
// rows of the lists.

import { bytes, clock, count, fill, h, mark, percent, seconds } from "./format.js";
import { from } from "./data.js";

const SLOWEST = 5;

export function card(label, value, hint, kind = "") {
  return h("div", { class: `card ${kind}`, title: hint }, h("span", {}, label), h("b", {}, value), h("span", {}, hint ?? ""));
}

export function cards(now, series) {
  const { epoch, totals } = now, last = series.last.length - 1, held = epoch.state_bytes;
  const limits = now.stages.flatMap((stage) => stage.limit ?? []), limit = limits.reduce((sum, size) => sum + size, 0);
  const since = Math.max(0, last - 20), span = series.at[last] - series.at[since];
  const rows = sum(series.rows_in, since + 1, last + 1), lasted = sum(series.lasted, since + 1, last + 1);
  const fullest = Math.max(0, ...now.stages.flatMap((stage) => (stage.limit ?? []).map((size, site) => (stage.site_columns.state_bytes[site] ?? 0) / size)));
  return [
    card("rows/s", count(lasted > 0 ? rows / lasted : epoch.lasted > 0 ? epoch.rows_in / epoch.lasted : 0), "last 20 epochs"),
    card("rows in all", count(totals.rows_in), span > 0 ? `${count(rows / span)} /s arrived lately` : "since the first epoch"),
    card("results", count(totals.results), `${count(epoch.results)} in epoch ${epoch.last}`),
    card("epoch", seconds(epoch.lasted), epoch.epochs ? `mean ${seconds(totals.lasted / Math.max(1, totals.epochs))} of ${count(totals.epochs)}` : ""),
    card("latency", epoch.done ? seconds(epoch.waited / epoch.done) : "–", "row to result, mean"),
    card("state", bytes(held), limit ? `fullest site at ${percent(fullest)}` : `${count(epoch.state_rows)} rows`, fullest > 0.95 ? "bad" : fullest > 0.85 ? "warn" : ""),
    card("on disk", bytes(epoch.spilled_bytes), epoch.spilled_bytes ? "spilled from memory" : "nothing spilled"),
    card("late rows", count(totals.late), totals.rows_in ? `${((100 * totals.late) / totals.rows_in).toFixed(2)} % of all` : "", totals.late > 0.01 * totals.rows_in ? "warn" : ""),
    ...(epoch.waiting_rows ? [card("waiting", count(epoch.waiting_rows), "rows in the skew buffer", "warn")] : []),
  ];
}

const sum = (column, low, high) => column.slice(low, high).reduce((total, value) => total + value, 0);

/** The longest epochs of a span and, in words, what took their time. */
export function slowest(table, query, low, high) {
  const { series } = query, begin = from(series.at, low), end = from(series.at, high + 1e-3);
  const worst = series.worst.slice(begin, end).sort((a, b) => b.seconds - a.seconds).slice(0, SLOWEST);
  const head = h("tr", {}, ["epoch", "took", "of that", "busiest site", "because"].map((name) => h("th", {}, name)));
  fill(table, h("thead", {}, head), h("tbody", {}, worst.map((one) => slow(one, query))));
}

function slow(worst, query) {
  const work = worst.sites.reduce((total, site) => total + site.busy, 0);
  const stage = worst.sites.reduce((most, site, number) => (site.busy > worst.sites[most].busy ? number : most), 0);
  const site = worst.sites[stage], done = query.events.filter((event) => event.epoch === worst.epoch && event.outcome === "done");
  const parts = Object.entries(worst.phases).sort((a, b) => b[1] - a[1]).slice(0, 3).map(([name, value]) => `${name} ${seconds(value)}`).join(", ");
  return h("tr", {}, h("td", {}, String(worst.epoch)), h("td", {}, seconds(worst.seconds)), h("td", {}, parts),
    h("td", {}, site ? `${site.site} of stage ${stage + 1}: ${seconds(site.busy)}` : "–"), h("td", {}, because(worst, site, work, done)));
}

function because(worst, site, work, done) {
  const said = [];
  const commit = worst.phases.commit ?? 0, plan = worst.phases.plan ?? 0;
  if (site && site.busy > 0.4 * worst.seconds && site.busy > 1.5 * site.mean && site.mean > 0)
    said.push(`one site had ${(site.busy / site.mean).toFixed(1)} times the mean work`);
  else if (site && site.busy > 0.4 * worst.seconds) {
    const [name] = Object.entries(site.seconds).filter(([name]) => !["wait", "emit", "ahead"].includes(name)).sort((a, b) => b[1] - a[1])[0] ?? ["work"];
    said.push(`all sites had much to do, mostly ${({ load: "loading state", write: "writing state", merge: "merging state", cleanup: "cleaning up generations", pack: "packing" })[name] ?? name}`);
  }
  if (commit > 0.3 * worst.seconds) said.push("the commit was slow: look at the checkpoint's filesystem");
  if (plan > 0.3 * worst.seconds) said.push("planning took long");
  if (site && work < 0.3 * worst.seconds && !said.length) said.push("the sites hardly worked: the source, the shuffle or the sink took the time");
  if (!said.length) said.push("no single cause");
  if (done.length) said.push(`then ${[...new Set(done.map((event) => event.kind))].join(", ")}`);
  return said.join("; ");
}

export function inputs(table, now, totals) {
  const head = h("tr", {}, ["stage", "input", "watermark (UTC)", "rows", "late", "late in all", "state"].map((name, at) => h("th", { class: at > 2 ? "number" : "" }, name)));
  const rows = now.stages.flatMap((stage, number) => now.query.stages[number].inputs.map((input, side) => {
    const seen = now.epoch.stages[number].sides[side] ?? {}, late = totals(number, side);
    return h("tr", {}, h("td", {}, String(number + 1)), h("td", {}, input.stage == null ? input.name : `${input.name} (results of stage ${input.stage + 1})`),
      h("td", {}, mark(stage.watermarks[side])), h("td", { class: "number" }, count(seen.rows_in)), h("td", { class: "number" }, count(seen.late)),
      h("td", { class: "number" }, count(late)), h("td", { class: "number" }, bytes(seen.state_bytes)));
  }));
  fill(table, h("thead", {}, head), h("tbody", {}, rows));
}

export function plans(box, now) {
  fill(box, now.query.stages.map((stage, number) => {
    const trees = now.stages[number].trees, names = stage.inputs.map((input) => input.name);
    return h("div", { class: "stage-card" }, h("strong", {}, stage.name),
      h("span", { class: "quiet" }, ` policy ${stage.policy}${stage.partitioner ? `, partitioner ${stage.partitioner}` : ""}, ${now.stages[number].sites} sites, ${now.stages[number].placement.length} groups`),
      h("ul", {}, stage.keeps.map((line) => h("li", {}, line))),
      trees?.known.map((text, which) => h("div", { class: "tree-row" }, tree(parsed(text), names), h("span", { class: "quiet" }, spans(trees.site, which)))));
  }));
}

/** "((0 1) 2)" as nested arrays. */
function parsed(text) {
  const stack = [[]];
  for (const token of text.match(/[()]|\w+/g) ?? []) {
    if (token === "(") stack.push([]);
    else if (token === ")" && stack.length > 1) { const node = stack.pop(); stack.at(-1).push(node); }
    else if (token !== ")") stack.at(-1).push(Number(token));
  }
  return stack[0][0] ?? [];
}

function tree(node, names) {
  if (typeof node === "number") return h("span", { class: "leaf" }, names[node] ?? String(node));
  return h("div", { class: "tree" }, h("b", {}, "⋈"), h("div", {}, node.map((child) => tree(child, names))));
}

/** Which sites run a tree: "sites 0–3, 7". */
function spans(site, which) {
  const mine = site.flatMap((tree, number) => (tree === which ? [number] : [])), parts = [];
  for (const number of mine) {
    const open = parts.at(-1);
    if (open && open[1] === number - 1) open[1] = number;
    else parts.push([number, number]);
  }
  const shown = parts.slice(0, 12).map(([low, high]) => (low === high ? low : `${low}–${high}`)).join(", ");
  return `${mine.length === 1 ? "site" : "sites"} ${shown}${parts.length > 12 ? ` and more, ${mine.length} in all` : ""}`;
}

export function meter(share, text, kind) {
  const filled = h("i");
  filled.style.width = `${100 * Math.min(1, Math.max(0, share || 0))}%`;
  return h("span", { class: `meter ${kind}` }, filled, h("em", {}, text));
}

export const SITE_COLUMNS = [["site", "site"], ["groups", "groups", "number extra"], ["busy", "busy"], ["rows", "rows", "number"], ["results", "results", "number extra"], ["held", "memory"], ["spilled", "on disk", "number extra"]];

export function siteRow(site) {
  return h("div", { class: "site" }, h("span", {}, String(site.site)), h("span", { class: "number extra" }, count(site.groups)),
    meter(site.share, seconds(site.busy), "busy"), h("span", { class: "number" }, count(site.rows)), h("span", { class: "number extra" }, count(site.results)),
    meter(site.limit ? site.held / site.limit : site.part, site.limit ? `${bytes(site.held)} of ${bytes(site.limit)}` : bytes(site.held), site.limit && site.held > 0.9 * site.limit ? "full" : "held"),
    h("span", { class: "number extra" }, site.spilled ? bytes(site.spilled) : ""));
}

export function eventRow(event, at) {
  const cost = [event.bytes ? bytes(event.bytes) : null, event.duration ? seconds(event.duration) : null, event.count > 1 ? `${event.count} times` : null].filter(Boolean).join(", ");
  const why = [event.why, event.reason].filter(Boolean).join(" – ");
  return h("div", { class: `event ${event.outcome}`, title: `${event.what}\n${why}` },
    h("span", { class: "quiet" }, at ? clock(at) : ""), h("span", { class: "what" }, h("span", { class: `tag ${event.kind.replace(/\W/g, "")}` }, event.outcome === "done" ? event.kind : `${event.kind} ${event.outcome}`), event.what),
    h("span", { class: "cost" }, cost), h("span", { class: "why" }, `epoch ${event.epoch}, stage ${event.stage + 1}: ${why}`));
}
